#include "keel/model/block_sums.h"

#include "keel/kernels/matmul/matmul.h"

namespace keel {

void BlockSums::add(Context& ctx, float* sums, View<float, 2> gradient, Rows piece, AnyView<const void, 2> dY,
                    AnyView<const void, 2> X) const {
  if (blocks == 1) return matmul(ctx, dY, X, gradient, Transpose::a, accumulate || piece.continues);
  const View<float, 2> part(sums + piece.block * gradient.size(), gradient.extents());
  matmul(ctx, dY, X, part, Transpose::a, piece.continues);
}

void BlockSums::add_up(Context& ctx, const float* sums, View<float, 2> gradient, bool accumulate) const {
  if (blocks == 1) return;
  sum_products(ctx, View<const float, 3>(sums, {blocks, gradient.extent(0), gradient.extent(1)}), gradient, accumulate);
}

}  // namespace keel
