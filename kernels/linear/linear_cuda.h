#pragma once

#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/common/weight_matrix.h"

namespace keel {

/// Most rows that linear_rows takes.
inline constexpr int64_t kCudaLinearRows = 12;

/// Y[n, o] = sum over i of X[n, i] W[o, i]   for 0 < N <= kCudaLinearRows.
struct CudaLinearRows {
  AnyView<const void, 2> X;
  WeightMatrix W;
  AnyView<void, 2> Y;
};
KEEL_CUDA_FUNCTION(void, linear_rows, CudaQueue&, const CudaLinearRows&)

/// Y[n,:] = W[rows[n],:]; rows null: W[n,:].
KEEL_CUDA_FUNCTION(void, widen_rows, CudaQueue&, const WeightMatrix& W, const int32_t* rows, AnyView<void, 2> Y)

/// Memory that the queue keeps for a block of widened weights.
KEEL_CUDA_FUNCTION(float*, widened_weights, CudaQueue&, int64_t floats)

}  // namespace keel
