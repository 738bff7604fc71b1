#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, add_bias, CudaQueue&, const float* b, View<float, 2> y)
KEEL_CUDA_FUNCTION(void, add_bias_backward, CudaQueue&, View<const float, 2> dy, float* db, View<float, 2> partial,
                   RowSums sums)

}  // namespace keel
