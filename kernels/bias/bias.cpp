#include "keel/kernels/bias/bias.h"

#include "keel/kernels/bias/bias_cpu.h"
#include "keel/kernels/bias/bias_cuda.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"

namespace keel {

void add_bias(Context& ctx, View<const float, 1> b, AnyView<void, 2> y) {
  check_shape("add_bias", "y", y, y.extents());
  check_shape("add_bias", "b", b, {y.extent(1)});
  const OperationScope scope(ctx, "bias", {.flops = static_cast<double>(y.size()), .bytes = bytes_of(y, 2)});
  if (ctx.device() == Device::cuda) return cuda::add_bias(ctx.queue(), b.data(), y);
  const auto floats = floats_of("add_bias", "y", y);
  KEEL_CALL_ISA(ctx.isa(), add_bias(b.data(), floats, ctx.team()));
}

void add_bias_backward(Context& ctx, AnyView<const void, 2> dy, View<float, 1> db, View<float, 2> partial,
                       RowSums sums) {
  const int64_t rows = dy.extent(0), d = dy.extent(1);
  check_shape("add_bias_backward", "dy", dy, {rows, d});
  check_shape("add_bias_backward", "db", db, {d});
  check_shape("add_bias_backward", "partial", partial, {chunk_count(rows), d});
  const OperationScope scope(ctx, "bias",
                             cost_of_rows(sums, {.flops = static_cast<double>(dy.size()), .bytes = bytes_of(dy)}));
  if (ctx.device() == Device::cuda) return cuda::add_bias_backward(ctx.queue(), dy, db.data(), partial, sums);
  const auto floats = floats_of("add_bias_backward", "dy", dy);
  KEEL_CALL_ISA(ctx.isa(), add_bias_backward(floats, db.data(), partial, sums, ctx.team()));
}

}  // namespace keel
