#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, rms_norm, CudaQueue&, View<const float, 3> x, const float* w, float eps, View<float, 3> y,
                   float* s)
KEEL_CUDA_FUNCTION(void, rms_norm_backward, CudaQueue&, View<const float, 3> dy, View<const float, 3> x, const float* w,
                   const float* s, View<float, 3> dx, bool accumulate_dx, float* dw, View<float, 2> partial,
                   RowSums sums)

}  // namespace keel
