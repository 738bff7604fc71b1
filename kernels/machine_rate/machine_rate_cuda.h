#pragma once

#include "keel/kernels/common/cuda_backend.h"

namespace keel {

/// a[i] = b[i] + s c[i], i < n, a multiple of 4; all aligned to 16.
KEEL_CUDA_FUNCTION(void, triad, CudaQueue&, const float* b, const float* c, float s, float* a, int64_t n)

/// Independent chains of x = x s + t, `rounds` times each, on the whole device; what comes of them is negative only if t
/// is, and goes to `sum` then. Returns the FLOPs.
KEEL_CUDA_FUNCTION(double, multiply_adds, CudaQueue&, int64_t rounds, float s, float t, float* sum)

}  // namespace keel
