#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

KEEL_DECLARE_ISA(void layer_norm(View<const float, 2> x, const float* w, const float* bias, float factor, float eps,
                                 View<float, 2> y, float* r, float* mean, Threads threads))
KEEL_DECLARE_ISA(void layer_norm_backward(View<const float, 2> dy, View<const float, 2> x, const float* w,
                                          const float* r, const float* mean, float factor, View<float, 2> dx,
                                          bool accumulate_dx, float* dw, float* dbias, View<float, 2> partial,
                                          RowSums sums, Threads threads))

}  // namespace keel
