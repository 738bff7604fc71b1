#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_memory.h"
#include "keel/kernels/common/weight_matrix.h"

namespace keel {

/// Y = X W^T + 1 bias^T, with W in any type: exact values of the weights, products and sums in fp32.
///   X: [N, in], Y: [N, out], rows may be strided, last axis contiguous; Y overlaps nothing else.   W: [out, in]
///   bias: [out], or null for none
/// On a GPU X, or X and Y, may be bf16, where W is. Where Y is, bias is rounded to that and then added to the sums; with
/// few rows the sums are rounded, and bias is added in fp32 and the result rounded again.
/// Any extent may be 0. Throws Error(shape) if the extents disagree.
/// With few rows W is read once, at the speed of the memory, and each element of Y is the same for any number of
/// threads. With more it is matmul (matmul.h), of weights that are not fp32 block by block as each thread widens them.
/// Which of the two goes by `batch_rows`, the rows of the batch that X is a block of (0: X is all of it), so that bits
/// do not depend on how a batch is cut (but by what its library chooses for another number of rows, where there are
/// more: on a GPU, and on a CPU without AVX-512).
KEEL_API void linear(Context&, AnyView<const void, 2> X, const WeightMatrix& W, AnyView<void, 2> Y,
                     int64_t batch_rows = 0, View<const float, 1> bias = {});
/// With a W of this type and these extents and an X of that type, for batches of so many rows at most. Of a bias see
/// expect_bias (matmul.h).
KEEL_API void expect_linear(OperationMemory&, WeightType W, ElementType X, int64_t out, int64_t in, int64_t batch_rows);

/// Y[n,:] = W[rows[n],:]   rows: [N], each in [0, W.rows).   Y: [N, in], rows may be strided, last axis contiguous; on
/// a GPU it may be bf16, where W is.
KEEL_API void widen_rows(Context&, View<const int32_t, 1> rows, const WeightMatrix& W, AnyView<void, 2> Y);

}  // namespace keel
