#pragma once

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"
#include "keel/kernels/rms_norm/rms_norm.h"

namespace keel {

KEEL_DECLARE_ISA(void rms_norm(View<const float, 3> x, const float* w, float eps, View<float, 3> y, float* s,
                               Threads threads))
KEEL_DECLARE_ISA(void rms_norm_backward(View<const float, 3> dy, View<const float, 3> x, const float* w, const float* s,
                                        View<float, 3> dx, bool accumulate_dx, float* dw, View<float, 2> partial,
                                        RowSums sums, Threads threads))

}  // namespace keel
