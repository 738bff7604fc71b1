#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

KEEL_DECLARE_ISA(void column_scale(View<const float, 2> x, const float* s, View<float, 2> y, Threads threads))
KEEL_DECLARE_ISA(void column_scale_backward(View<const float, 2> dy, View<const float, 2> x, const float* s,
                                            View<float, 2> dx, float* ds, View<float, 2> partial, RowSums sums,
                                            Threads threads))

}  // namespace keel
