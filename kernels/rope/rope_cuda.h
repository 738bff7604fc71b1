#pragma once

#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/rope/rope.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, rope_table, CudaQueue&, const double* frequencies, View<float, 2> cos, View<float, 2> sin)
KEEL_CUDA_FUNCTION(void, rope, CudaQueue&, const int32_t* positions, View<const float, 2> cos, View<const float, 2> sin,
                   AnyView<void, 3> x, RopeDirection direction)

}  // namespace keel
