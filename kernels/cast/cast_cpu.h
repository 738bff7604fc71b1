#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/bf16.h"
#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

KEEL_DECLARE_ISA(void narrow_rows(View<const float, 2> from, View<Bf16, 2> to, Threads threads))
KEEL_DECLARE_ISA(void widen_rows(View<const Bf16, 2> from, View<float, 2> to, Threads threads))

}  // namespace keel
