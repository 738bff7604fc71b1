#pragma once

#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/grad_norm/grad_norm.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, grad_norm, CudaQueue&, const float* g, int64_t size, StepScalars* scalars, double* partial)

}  // namespace keel
