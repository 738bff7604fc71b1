#include "keel/kernels/layer_norm/layer_norm.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/layer_norm/layer_norm_cpu.h"
#include "keel/kernels/layer_norm/layer_norm_cuda.h"

namespace keel {

void layer_norm(Context& ctx, AnyView<const void, 2> x, View<const float, 1> w, View<const float, 1> bias, float factor,
                float eps, AnyView<void, 2> y, View<float, 1> r, View<float, 1> mean) {
  constexpr const char* kName = "layer_norm";
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape(kName, "x", x, {rows, d});
  check_shape(kName, "w", w, {d});
  check_shape(kName, "bias", bias, {d});
  check_shape(kName, "y", y, {rows, d});
  check_shape(kName, "r", r, {rows});
  check_shape(kName, "mean", mean, {rows});
  if (x.type() == ElementType::bf16) check_type(kName, "y", y, x.type());
  const OperationScope scope(ctx, "layer_norm",
                             {.flops = 7 * static_cast<double>(x.size()), .bytes = bytes_of(x) + bytes_of(y)});
  if (ctx.device() == Device::cuda) {
    return cuda::layer_norm(ctx.queue(), {x, w.data(), bias.data(), factor, eps, y, r.data(), mean.data()});
  }
  const auto from = floats_of(kName, "x", x);
  const auto to = floats_of(kName, "y", y);
  KEEL_CALL_ISA(ctx.isa(), layer_norm(from, w.data(), bias.data(), factor, eps, to, r.data(), mean.data(), ctx.team()));
}

void layer_norm_backward(Context& ctx, AnyView<const void, 2> dy, AnyView<const void, 2> x, View<const float, 1> w,
                         View<const float, 1> r, View<const float, 1> mean, float factor, AnyView<void, 2> dx,
                         bool accumulate_dx, View<float, 1> dw, View<float, 1> dbias, View<float, 2> partial,
                         RowSums sums) {
  constexpr const char* kName = "layer_norm_backward";
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape(kName, "x", x, {rows, d});
  check_shape(kName, "dy", dy, {rows, d});
  check_shape(kName, "w", w, {d});
  check_shape(kName, "r", r, {rows});
  check_shape(kName, "mean", mean, {rows});
  check_shape(kName, "dx", dx, {rows, d});
  check_shape(kName, "dw", dw, {d});
  check_shape(kName, "dbias", dbias, {d});
  check_shape(kName, "partial", partial, {chunk_count(rows), 2 * d});
  check_type(kName, "dx", dx, x.type());
  if (x.type() == ElementType::bf16) check_type(kName, "dy", dy, x.type());
  const OperationScope scope(ctx, "layer_norm backward",
                             cost_of_rows(sums, {.flops = 14 * static_cast<double>(x.size()),
                                                 .bytes = bytes_of(dy) + bytes_of(x, accumulate_dx ? 3 : 2)}));
  if (ctx.device() == Device::cuda) {
    return cuda::layer_norm_backward(ctx.queue(), {dy, x, w.data(), r.data(), mean.data(), factor, dx, accumulate_dx,
                                                   dw.data(), dbias.data(), partial, sums});
  }
  const auto dy_floats = floats_of(kName, "dy", dy);
  const auto x_floats = floats_of(kName, "x", x);
  KEEL_CALL_ISA(ctx.isa(),
                layer_norm_backward(dy_floats, x_floats, w.data(), r.data(), mean.data(), factor, dx.as<float>(),
                                    accumulate_dx, dw.data(), dbias.data(), partial, sums, ctx.team()));
}

}  // namespace keel
