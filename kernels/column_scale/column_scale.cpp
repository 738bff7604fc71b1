#include "keel/kernels/column_scale/column_scale.h"

#include "keel/kernels/column_scale/column_scale_cpu.h"
#include "keel/kernels/column_scale/column_scale_cuda.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"

namespace keel {

void column_scale(Context& ctx, AnyView<const void, 2> x, View<const float, 1> s, AnyView<void, 2> y) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape("column_scale", "x", x, {rows, d});
  check_shape("column_scale", "s", s, {d});
  check_shape("column_scale", "y", y, {rows, d});
  if (x.type() == ElementType::bf16) check_type("column_scale", "y", y, x.type());
  const OperationScope scope(ctx, "column_scale",
                             {.flops = static_cast<double>(x.size()), .bytes = bytes_of(x) + bytes_of(y)});
  if (ctx.device() == Device::cuda) return cuda::column_scale(ctx.queue(), x, s.data(), y);
  const auto from = floats_of("column_scale", "x", x);
  const auto to = floats_of("column_scale", "y", y);
  KEEL_CALL_ISA(ctx.isa(), column_scale(from, s.data(), to, ctx.team()));
}

void column_scale_backward(Context& ctx, AnyView<const void, 2> dy, AnyView<const void, 2> x, View<const float, 1> s,
                           AnyView<void, 2> dx, View<float, 1> ds, View<float, 2> partial, RowSums sums) {
  constexpr const char* kName = "column_scale_backward";
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape(kName, "x", x, {rows, d});
  check_shape(kName, "dy", dy, {rows, d});
  check_shape(kName, "s", s, {d});
  check_shape(kName, "dx", dx, {rows, d});
  check_shape(kName, "ds", ds, {d});
  check_shape(kName, "partial", partial, {chunk_count(rows), d});
  check_type(kName, "dx", dx, dy.type());
  if (x.type() == ElementType::bf16) check_type(kName, "dy", dy, x.type());
  const OperationScope scope(
      ctx, "column_scale backward",
      cost_of_rows(sums, {.flops = 3 * static_cast<double>(x.size()), .bytes = bytes_of(x) + bytes_of(dy, 2)}));
  if (ctx.device() == Device::cuda)
    return cuda::column_scale_backward(ctx.queue(), dy, x, s.data(), dx, ds.data(), partial, sums);
  const auto dy_floats = floats_of(kName, "dy", dy);
  const auto x_floats = floats_of(kName, "x", x);
  KEEL_CALL_ISA(ctx.isa(), column_scale_backward(dy_floats, x_floats, s.data(), dx.as<float>(), ds.data(), partial,
                                                 sums, ctx.team()));
}

}  // namespace keel
