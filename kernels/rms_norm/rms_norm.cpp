#include "keel/kernels/rms_norm/rms_norm.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/rms_norm/rms_norm_cpu.h"

namespace keel {

void rms_norm(Context& ctx, View<const float, 2> x, View<const float, 1> w, float eps, View<float, 2> y,
              View<float, 1> s) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape("rms_norm", "x", x, {rows, d});
  check_shape("rms_norm", "w", w, {d});
  check_shape("rms_norm", "y", y, {rows, d});
  check_shape("rms_norm", "s", s, {rows});
  KEEL_CALL_ISA(ctx.isa(), rms_norm(x, w.data(), eps, y, s.data(), ctx.threads()));
}

void rms_norm_backward(Context& ctx, View<const float, 2> dy, View<const float, 2> x, View<const float, 1> w,
                       View<const float, 1> s, View<float, 2> dx, bool accumulate_dx, View<float, 1> dw,
                       View<float, 2> partial) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape("rms_norm_backward", "x", x, {rows, d});
  check_shape("rms_norm_backward", "dy", dy, {rows, d});
  check_shape("rms_norm_backward", "w", w, {d});
  check_shape("rms_norm_backward", "s", s, {rows});
  check_shape("rms_norm_backward", "dx", dx, {rows, d});
  check_shape("rms_norm_backward", "dw", dw, {d});
  check_shape("rms_norm_backward", "partial", partial, {chunk_count(rows), d});
  KEEL_CALL_ISA(ctx.isa(),
                rms_norm_backward(dy, x, w.data(), s.data(), dx, accumulate_dx, dw.data(), partial, ctx.threads()));
}

}  // namespace keel
