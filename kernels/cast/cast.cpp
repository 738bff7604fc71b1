#include "keel/kernels/cast/cast.h"

#include "keel/kernels/cast/cast_cpu.h"
#include "keel/kernels/cast/cast_cuda.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"

namespace keel {

void narrow(Context& ctx, View<const float, 2> from, View<Bf16, 2> to) {
  check_shape("narrow", "from", from, from.extents());
  check_shape("narrow", "to", to, from.extents());
  const OperationScope scope(ctx, "cast", {.flops = 0, .bytes = bytes_of(from) + bytes_of(to)});
  if (ctx.device() == Device::cuda) return cuda::narrow(ctx.queue(), from, to);
  KEEL_CALL_ISA(ctx.isa(), narrow_rows(from, to, ctx.team()));
}

void widen(Context& ctx, View<const Bf16, 2> from, View<float, 2> to) {
  check_shape("widen", "from", from, from.extents());
  check_shape("widen", "to", to, from.extents());
  const OperationScope scope(ctx, "cast", {.flops = 0, .bytes = bytes_of(from) + bytes_of(to)});
  if (ctx.device() == Device::cuda) return cuda::widen(ctx.queue(), from, to);
  KEEL_CALL_ISA(ctx.isa(), widen_rows(from, to, ctx.team()));
}

}  // namespace keel
