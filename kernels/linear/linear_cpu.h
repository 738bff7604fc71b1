#pragma once

#include <cstdint>

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/weight_matrix.h"

namespace keel {

/// Y[n, o] = sum over i of X[n, i] W[o, i] for all rows of W, on the calling thread.   X: N rows, Y: N rows, N > 0.
struct LinearRows {
  const float* x;
  int64_t N, x_stride;
  WeightMatrix W;
  float* y;
  int64_t y_stride;
};
KEEL_DECLARE_ISA(void linear_rows(const LinearRows&))

/// y: [W.rows, W.columns], rows `stride` apart.
KEEL_DECLARE_ISA(void widen_weights(const WeightMatrix& W, float* y, int64_t stride))

}  // namespace keel
