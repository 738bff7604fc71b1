#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, add_bias, CudaQueue&, const float* b, AnyView<void, 2> y)
KEEL_CUDA_FUNCTION(void, add_bias_backward, CudaQueue&, AnyView<const void, 2> dy, float* db, View<float, 2> partial,
                   RowSums sums)

}  // namespace keel
