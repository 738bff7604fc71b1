#include "keel/kernels/rms_norm/rms_norm.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/rms_norm/rms_norm_cpu.h"
#include "keel/kernels/rms_norm/rms_norm_cuda.h"

namespace keel {
namespace {

/// Rows as heads of which each row has one.
template <class Access>
AnyView<Access, 3> one_head(const AnyView<Access, 2>& x) {
  return x.template reshaped<3>(0, {x.extent(0), 1, x.extent(1)}, {x.stride(0), x.extent(1), x.stride(1)});
}

void forward(Context& ctx, const AnyView<const void, 3>& x, const float* w, float eps, const AnyView<void, 3>& y,
             float* s) {
  check_type("rms_norm", "y", y, x.type());
  const OperationScope scope(ctx, "rms_norm", {.flops = 4 * static_cast<double>(x.size()), .bytes = bytes_of(x, 2)});
  if (ctx.device() == Device::cuda) return cuda::rms_norm(ctx.queue(), x, w, eps, y, s);
  const auto floats = floats_of("rms_norm", "x", x);
  KEEL_CALL_ISA(ctx.isa(), rms_norm(floats, w, eps, y.as<float>(), s, ctx.team()));
}

void backward(Context& ctx, const RmsNormBackward& norm) {
  constexpr const char* kName = "rms_norm_backward";
  check_type(kName, "dy", norm.dy, norm.x.type());
  check_type(kName, "dx", norm.dx, norm.x.type());
  const OperationScope scope(ctx, "rms_norm backward",
                             cost_of_rows(norm.sums, {.flops = 10 * static_cast<double>(norm.x.size()),
                                                      .bytes = bytes_of(norm.x, norm.accumulate_dx ? 4 : 3)}));
  if (ctx.device() == Device::cuda) return cuda::rms_norm_backward(ctx.queue(), norm);
  const auto x = floats_of(kName, "x", norm.x);
  KEEL_CALL_ISA(ctx.isa(), rms_norm_backward(norm.dy.as<float>(), x, norm.w, norm.s, norm.dx.as<float>(),
                                             norm.accumulate_dx, norm.dw, norm.partial, norm.sums, ctx.team()));
}

}  // namespace

void rms_norm(Context& ctx, AnyView<const void, 2> x, View<const float, 1> w, float eps, AnyView<void, 2> y,
              View<float, 1> s) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape("rms_norm", "x", x, {rows, d});
  check_shape("rms_norm", "w", w, {d});
  check_shape("rms_norm", "y", y, {rows, d});
  check_shape("rms_norm", "s", s, {rows});
  forward(ctx, one_head(x), w.data(), eps, one_head(y), s.data());
}

void rms_norm_backward(Context& ctx, AnyView<const void, 2> dy, AnyView<const void, 2> x, View<const float, 1> w,
                       View<const float, 1> s, AnyView<void, 2> dx, bool accumulate_dx, View<float, 1> dw,
                       View<float, 2> partial, RowSums sums) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape("rms_norm_backward", "x", x, {rows, d});
  check_shape("rms_norm_backward", "dy", dy, {rows, d});
  check_shape("rms_norm_backward", "w", w, {d});
  check_shape("rms_norm_backward", "s", s, {rows});
  check_shape("rms_norm_backward", "dx", dx, {rows, d});
  check_shape("rms_norm_backward", "dw", dw, {d});
  check_shape("rms_norm_backward", "partial", partial, {chunk_count(rows), d});
  backward(ctx, {one_head(dy), one_head(x), w.data(), s.data(), one_head(dx), accumulate_dx, dw.data(), partial, sums});
}

void rms_norm(Context& ctx, AnyView<const void, 3> x, View<const float, 1> w, float eps, AnyView<void, 3> y,
              View<float, 2> s) {
  const int64_t d = x.extent(2);
  check_shape("rms_norm", "x", x, x.extents());
  check_shape("rms_norm", "w", w, {d});
  check_shape("rms_norm", "y", y, x.extents());
  check_dense("rms_norm", "s", s, {x.extent(0), x.extent(1)});
  forward(ctx, x, w.data(), eps, y, s.data());
}

void rms_norm_backward(Context& ctx, AnyView<const void, 3> dy, AnyView<const void, 3> x, View<const float, 1> w,
                       View<const float, 2> s, AnyView<void, 3> dx, View<float, 1> dw, View<float, 2> partial,
                       RowSums sums) {
  const int64_t d = x.extent(2);
  check_shape("rms_norm_backward", "x", x, x.extents());
  check_shape("rms_norm_backward", "dy", dy, x.extents());
  check_shape("rms_norm_backward", "w", w, {d});
  check_dense("rms_norm_backward", "s", s, {x.extent(0), x.extent(1)});
  check_shape("rms_norm_backward", "dx", dx, x.extents());
  check_shape("rms_norm_backward", "dw", dw, {d});
  check_shape("rms_norm_backward", "partial", partial, {chunk_count(x.extent(0) * x.extent(1)), d});
  backward(ctx, {dy, x, w.data(), s.data(), dx, false, dw.data(), partial, sums});
}

}  // namespace keel
