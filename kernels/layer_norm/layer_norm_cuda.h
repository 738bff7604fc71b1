#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, layer_norm, CudaQueue&, View<const float, 2> x, const float* w, const float* bias, float eps,
                   View<float, 2> y, float* r, float* mean)
KEEL_CUDA_FUNCTION(void, layer_norm_backward, CudaQueue&, View<const float, 2> dy, View<const float, 2> x,
                   const float* w, const float* r, const float* mean, View<float, 2> dx, bool accumulate_dx, float* dw,
                   float* dbias, View<float, 2> partial, RowSums sums)

}  // namespace keel
