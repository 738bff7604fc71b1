#pragma once

#include <cstdint>

#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, exp_scale, CudaQueue&, const float* base, const float* s, int64_t n, float* y)
KEEL_CUDA_FUNCTION(void, exp_scale_backward, CudaQueue&, const float* dy, const float* y, int64_t n, float* ds)

}  // namespace keel
