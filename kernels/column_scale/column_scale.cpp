#include "keel/kernels/column_scale/column_scale.h"

#include "keel/kernels/column_scale/column_scale_cpu.h"
#include "keel/kernels/column_scale/column_scale_cuda.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"

namespace keel {

void column_scale(Context& ctx, View<const float, 2> x, View<const float, 1> s, View<float, 2> y) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape("column_scale", "x", x, {rows, d});
  check_shape("column_scale", "s", s, {d});
  check_shape("column_scale", "y", y, {rows, d});
  const OperationScope scope(ctx, "column_scale", {.flops = static_cast<double>(x.size()), .bytes = bytes_of(x, 2)});
  if (ctx.device() == Device::cuda) return cuda::column_scale(ctx.queue(), x, s.data(), y);
  KEEL_CALL_ISA(ctx.isa(), column_scale(x, s.data(), y, ctx.team()));
}

void column_scale_backward(Context& ctx, View<const float, 2> dy, View<const float, 2> x, View<const float, 1> s,
                           View<float, 2> dx, View<float, 1> ds, View<float, 2> partial, RowSums sums) {
  constexpr const char* kName = "column_scale_backward";
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape(kName, "x", x, {rows, d});
  check_shape(kName, "dy", dy, {rows, d});
  check_shape(kName, "s", s, {d});
  check_shape(kName, "dx", dx, {rows, d});
  check_shape(kName, "ds", ds, {d});
  check_shape(kName, "partial", partial, {chunk_count(rows), d});
  const OperationScope scope(ctx, "column_scale backward",
                             cost_of_rows(sums, {.flops = 3 * static_cast<double>(x.size()), .bytes = bytes_of(x, 3)}));
  if (ctx.device() == Device::cuda)
    return cuda::column_scale_backward(ctx.queue(), dy, x, s.data(), dx, ds.data(), partial, sums);
  KEEL_CALL_ISA(ctx.isa(), column_scale_backward(dy, x, s.data(), dx, ds.data(), partial, sums, ctx.team()));
}

}  // namespace keel
