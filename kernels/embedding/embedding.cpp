#include "keel/kernels/embedding/embedding.h"

#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/embedding/embedding_cpu.h"
#include "keel/kernels/embedding/embedding_cuda.h"
#include "keel/kernels/linear/linear.h"

namespace keel {

void embedding(Context& ctx, View<const int32_t, 1> tokens, const WeightMatrix& table, AnyView<void, 2> y) {
  const int64_t count = tokens.extent(0), d = table.columns;
  check_shape("embedding", "tokens", tokens, {count});
  table.check("embedding", table.rows, d);
  check_dense("embedding", "y", y, {count, d});
  if (!table.is_fp32() || ctx.device() == Device::cuda) return widen_rows(ctx, tokens, table, y);
  const OperationScope scope(ctx, "embedding", {.flops = 0, .bytes = bytes_of(y, 2)});
  const View<float, 2> floats = floats_of("embedding", "y", y);
  KEEL_CALL_ISA(ctx.isa(), embedding(tokens.data(), count, table.fp32().data(), d, floats.data(), ctx.team()));
}

void embedding_backward(Context& ctx, View<const int32_t, 1> tokens, AnyView<const void, 2> dy,
                        View<float, 2> d_table) {
  const int64_t count = tokens.extent(0), d = d_table.extent(1);
  check_shape("embedding_backward", "tokens", tokens, {count});
  check_dense("embedding_backward", "dy", dy, {count, d});
  check_dense("embedding_backward", "d_table", d_table, d_table.extents());
  const OperationScope scope(ctx, "embedding", {.flops = static_cast<double>(dy.size()), .bytes = bytes_of(dy, 3)});
  if (ctx.device() == Device::cuda) {
    return cuda::embedding_backward(ctx.queue(), tokens.data(), count, dy, d_table.extent(0), d, d_table.data());
  }
  const auto floats = floats_of("embedding_backward", "dy", dy);
  KEEL_CALL_ISA(ctx.isa(), embedding_backward(tokens.data(), count, floats.data(), d, d_table.data(), ctx.team()));
}

void expect_embedding_backward(OperationMemory& memory, int64_t tokens) {
  memory.expect(OperationMemory::token_order, token_order_bytes(tokens));
}

}  // namespace keel
