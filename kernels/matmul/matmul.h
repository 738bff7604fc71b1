#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/context.h"

namespace keel {

enum class Transpose { none, a, b, both };

/// C = op(A) op(B)  or, with accumulate,  C += op(A) op(B).   op transposes what `transpose` names.
/// After op: A [m, k], B [k, n], C [m, n]; fp32, sums in fp32. Rows may be strided, the last axis is contiguous
/// (stride 1); C overlaps neither A nor B. Any extent may be 0. Throws Error(shape) if the extents disagree.
/// By oneDNN; primitives are made once for each combination of shapes and strides and kept in the context.
///   forward          Y  = X  W^T      Transpose::b      X [N, in], W [out, in]
///   input gradient   dX = dY W        Transpose::none
///   weight gradient  dW += dY^T X     Transpose::a
KEEL_API void matmul(Context&, View<const float, 2> A, View<const float, 2> B, View<float, 2> C,
                     Transpose transpose = Transpose::none, bool accumulate = false);

}  // namespace keel
