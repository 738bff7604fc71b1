#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, moments, CudaQueue&, View<const float, 2> x, AnyView<const void, 2> y, double* sums,
                   double* partial)
/// partial: [chunk_count(n, kLogSumChunk)].
KEEL_CUDA_FUNCTION(void, log_sum, CudaQueue&, const float* r, int64_t n, double* sum, double* partial)

}  // namespace keel
