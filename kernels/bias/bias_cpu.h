#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

KEEL_DECLARE_ISA(void add_bias(const float* b, View<float, 2> y, Threads threads))
KEEL_DECLARE_ISA(void add_bias_backward(View<const float, 2> dy, float* db, View<float, 2> partial, RowSums sums,
                                        Threads threads))

}  // namespace keel
