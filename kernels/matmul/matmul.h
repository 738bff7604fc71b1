#pragma once

#include <span>

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_memory.h"

namespace keel {

enum class Transpose { none, a, b, both };
inline bool transposes_a(Transpose t) {
  return t == Transpose::a || t == Transpose::both;
}
inline bool transposes_b(Transpose t) {
  return t == Transpose::b || t == Transpose::both;
}

/// C = op(A) op(B)  or, with accumulate,  C += op(A) op(B).   op transposes what `transpose` names.
/// After op: A [m, k], B [k, n], C [m, n]; fp32 or, on a GPU, A and B or all three bf16; sums in fp32. Rows may be
/// strided, the last axis is contiguous (stride 1); C overlaps neither A nor B. Any extent may be 0. Throws
/// Error(shape) if the extents disagree.
/// bias: [n], outside C, or null; not with accumulate. C[i,:] = .. + bias, on a GPU in the product's epilogue; where C
/// is bf16, bias is rounded to that first.
/// By oneDNN, on a GPU by cuBLASLt; primitives are made once for each combination of shapes and strides and kept in the
/// context.
///   forward          Y  = X  W^T      Transpose::b      X [N, in], W [out, in]
///   input gradient   dX = dY W        Transpose::none
///   weight gradient  dW += dY^T X     Transpose::a
/// Same shapes, strides and number of threads (on a GPU: alignment): same bits. Another one may add in another order.
KEEL_API void matmul(Context&, AnyView<const void, 2> A, AnyView<const void, 2> B, AnyView<void, 2> C,
                     Transpose transpose = Transpose::none, bool accumulate = false, View<const float, 1> bias = {});

/// Products on a GPU share one workspace of a fixed size, and the place of a rounded bias.
KEEL_API void expect_matmul(OperationMemory&);
KEEL_API void expect_bias(OperationMemory&, ElementType C, int64_t n);

/// C = sum over p of parts[p, :, :]  or, with accumulate, C += that, p ascending: products over parts of what is
/// summed, added up.   parts: [P, m, n], P > 0, dense.  C: [m, n], last axis contiguous.
KEEL_API void sum_products(Context&, View<const float, 3> parts, View<float, 2> C, bool accumulate);

/// One product, for planning. Extents after op; a row stride of 0 stands for dense rows.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  Transpose transpose = Transpose::none;
  bool accumulate = false;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;  ///< of the matrices as stored, in elements
  bool operator==(const MatmulShape&) const = default;
};

/// Bytes that this context keeps for products beside the caller's buffers: one scratchpad, as large as the most
/// demanding of them wanted, and generated code for each. Nothing else is allocated once a product has run, but for
/// some hundred bytes during the call. On a GPU: a workspace of a fixed size, and what linear.h widens weights into.
KEEL_API int64_t matmul_memory(Context&);
/// The same once all of `shapes` will have run too, and `of_workers` in the contexts of the threads. Makes no buffer.
KEEL_API int64_t matmul_memory(Context&, std::span<const MatmulShape> shapes,
                               std::span<const MatmulShape> of_workers = {});

}  // namespace keel
