#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, column_scale, CudaQueue&, View<const float, 2> x, const float* s, View<float, 2> y)
KEEL_CUDA_FUNCTION(void, column_scale_backward, CudaQueue&, View<const float, 2> dy, View<const float, 2> x,
                   const float* s, View<float, 2> dx, float* ds, View<float, 2> partial, RowSums sums)

}  // namespace keel
