#include "keel/kernels/grad_norm/grad_norm.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/grad_norm/grad_norm_cpu.h"
#include "keel/kernels/grad_norm/grad_norm_cuda.h"

namespace keel {

void grad_norm(Context& ctx, View<const float, 1> g, View<StepScalars, 1> scalars, View<double, 1> partial) {
  const int64_t size = g.extent(0);
  check_shape("grad_norm", "g", g, {size});
  check_shape("grad_norm", "scalars", scalars, {1});
  check_shape("grad_norm", "partial", partial, {chunk_count(size, kGradNormChunk)});
  const OperationScope scope(ctx, "grad_norm", {.flops = 2 * static_cast<double>(size), .bytes = bytes_of(g)});
  if (ctx.device() == Device::cuda) {
    return cuda::grad_norm(ctx.queue(), g.data(), size, scalars.data(), partial.data());
  }
  KEEL_CALL_ISA(ctx.isa(), grad_norm(g.data(), size, *scalars.data(), partial.data(), ctx.team()));
}

}  // namespace keel
