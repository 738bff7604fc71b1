#include "keel/kernels/exp_scale/exp_scale.h"

#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/exp_scale/exp_scale_cpu.h"
#include "keel/kernels/exp_scale/exp_scale_cuda.h"

namespace keel {

void exp_scale(Context& ctx, View<const float, 1> base, View<const float, 1> s, View<float, 1> y) {
  const int64_t n = y.extent(0);
  check_shape("exp_scale", "y", y, {n});
  check_shape("exp_scale", "base", base, {n});
  check_shape("exp_scale", "s", s, {n});
  if (ctx.device() == Device::cuda) return cuda::exp_scale(ctx.queue(), base.data(), s.data(), n, y.data());
  KEEL_CALL_ISA(ctx.isa(), exp_scale(base.data(), s.data(), n, y.data(), ctx.team()));
}

void exp_scale_backward(Context& ctx, View<const float, 1> dy, View<const float, 1> y, View<float, 1> ds) {
  const int64_t n = y.extent(0);
  check_shape("exp_scale_backward", "y", y, {n});
  check_shape("exp_scale_backward", "dy", dy, {n});
  check_shape("exp_scale_backward", "ds", ds, {n});
  if (ctx.device() == Device::cuda) return cuda::exp_scale_backward(ctx.queue(), dy.data(), y.data(), n, ds.data());
  KEEL_CALL_ISA(ctx.isa(), exp_scale_backward(dy.data(), y.data(), n, ds.data(), ctx.team()));
}

}  // namespace keel
