#include "keel/kernels/rms_norm/rms_norm.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/rms_norm/rms_norm_cpu.h"
#include "keel/kernels/rms_norm/rms_norm_cuda.h"

namespace keel {
namespace {

/// Rows as heads of which each row has one.
template <class T>
View<T, 3> one_head(View<T, 2> x) {
  return {x.data(), {x.extent(0), 1, x.extent(1)}, {x.stride(0), x.extent(1), x.stride(1)}};
}

}  // namespace

void rms_norm(Context& ctx, View<const float, 2> x, View<const float, 1> w, float eps, View<float, 2> y,
              View<float, 1> s) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape("rms_norm", "x", x, {rows, d});
  check_shape("rms_norm", "w", w, {d});
  check_shape("rms_norm", "y", y, {rows, d});
  check_shape("rms_norm", "s", s, {rows});
  const OperationScope scope(ctx, "rms_norm", {.flops = 4 * static_cast<double>(x.size()), .bytes = bytes_of(x, 2)});
  if (ctx.device() == Device::cuda)
    return cuda::rms_norm(ctx.queue(), one_head(x), w.data(), eps, one_head(y), s.data());
  KEEL_CALL_ISA(ctx.isa(), rms_norm(one_head(x), w.data(), eps, one_head(y), s.data(), ctx.team()));
}

void rms_norm_backward(Context& ctx, View<const float, 2> dy, View<const float, 2> x, View<const float, 1> w,
                       View<const float, 1> s, View<float, 2> dx, bool accumulate_dx, View<float, 1> dw,
                       View<float, 2> partial, RowSums sums) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape("rms_norm_backward", "x", x, {rows, d});
  check_shape("rms_norm_backward", "dy", dy, {rows, d});
  check_shape("rms_norm_backward", "w", w, {d});
  check_shape("rms_norm_backward", "s", s, {rows});
  check_shape("rms_norm_backward", "dx", dx, {rows, d});
  check_shape("rms_norm_backward", "dw", dw, {d});
  check_shape("rms_norm_backward", "partial", partial, {chunk_count(rows), d});
  const OperationScope scope(
      ctx, "rms_norm backward",
      cost_of_rows(sums, {.flops = 10 * static_cast<double>(x.size()), .bytes = bytes_of(x, accumulate_dx ? 4 : 3)}));
  if (ctx.device() == Device::cuda)
    return cuda::rms_norm_backward(ctx.queue(), one_head(dy), one_head(x), w.data(), s.data(), one_head(dx),
                                   accumulate_dx, dw.data(), partial, sums);
  KEEL_CALL_ISA(ctx.isa(), rms_norm_backward(one_head(dy), one_head(x), w.data(), s.data(), one_head(dx), accumulate_dx,
                                             dw.data(), partial, sums, ctx.team()));
}

void rms_norm(Context& ctx, View<const float, 3> x, View<const float, 1> w, float eps, View<float, 3> y,
              View<float, 2> s) {
  const int64_t d = x.extent(2);
  check_shape("rms_norm", "x", x, x.extents());
  check_shape("rms_norm", "w", w, {d});
  check_shape("rms_norm", "y", y, x.extents());
  check_dense("rms_norm", "s", s, {x.extent(0), x.extent(1)});
  const OperationScope scope(ctx, "rms_norm", {.flops = 4 * static_cast<double>(x.size()), .bytes = bytes_of(x, 2)});
  if (ctx.device() == Device::cuda) return cuda::rms_norm(ctx.queue(), x, w.data(), eps, y, s.data());
  KEEL_CALL_ISA(ctx.isa(), rms_norm(x, w.data(), eps, y, s.data(), ctx.team()));
}

void rms_norm_backward(Context& ctx, View<const float, 3> dy, View<const float, 3> x, View<const float, 1> w,
                       View<const float, 2> s, View<float, 3> dx, View<float, 1> dw, View<float, 2> partial,
                       RowSums sums) {
  const int64_t d = x.extent(2);
  check_shape("rms_norm_backward", "x", x, x.extents());
  check_shape("rms_norm_backward", "dy", dy, x.extents());
  check_shape("rms_norm_backward", "w", w, {d});
  check_dense("rms_norm_backward", "s", s, {x.extent(0), x.extent(1)});
  check_shape("rms_norm_backward", "dx", dx, x.extents());
  check_shape("rms_norm_backward", "dw", dw, {d});
  check_shape("rms_norm_backward", "partial", partial, {chunk_count(x.extent(0) * x.extent(1)), d});
  const OperationScope scope(
      ctx, "rms_norm backward",
      cost_of_rows(sums, {.flops = 10 * static_cast<double>(x.size()), .bytes = bytes_of(x, 3)}));
  if (ctx.device() == Device::cuda)
    return cuda::rms_norm_backward(ctx.queue(), dy, x, w.data(), s.data(), dx, false, dw.data(), partial, sums);
  KEEL_CALL_ISA(ctx.isa(),
                rms_norm_backward(dy, x, w.data(), s.data(), dx, false, dw.data(), partial, sums, ctx.team()));
}

}  // namespace keel
