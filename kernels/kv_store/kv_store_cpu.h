#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

KEEL_DECLARE_ISA(void kv_store(View<const float, 3> x, const int32_t* rows, View<float, 3> cache, Threads threads))

}  // namespace keel
