#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, column_scale, CudaQueue&, AnyView<const void, 2> x, const float* s, AnyView<void, 2> y)
KEEL_CUDA_FUNCTION(void, column_scale_backward, CudaQueue&, AnyView<const void, 2> dy, AnyView<const void, 2> x,
                   const float* s, AnyView<void, 2> dx, float* ds, View<float, 2> partial, RowSums sums)

}  // namespace keel
