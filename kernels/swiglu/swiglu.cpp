#include "keel/kernels/swiglu/swiglu.h"

#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/swiglu/swiglu_cpu.h"
#include "keel/kernels/swiglu/swiglu_cuda.h"

namespace keel {

namespace {

template <class Kept>
using OnDevice = CudaFunction<void(CudaQueue&, View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
                                   View<Kept, 2> kept_gate, View<Kept, 2> kept_up)>;

template <class Kept>
void forward(Context& ctx, View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
             View<Kept, 2> kept_gate, View<Kept, 2> kept_up, OnDevice<Kept>& on_device) {
  check_shape("swiglu", "gate", gate, gate.extents());
  check_shape("swiglu", "up", up, gate.extents());
  const bool keeps = kept_gate || kept_up;
  if (h || !keeps) check_shape("swiglu", "h", h, gate.extents());
  if (keeps) {
    check_shape("swiglu", "kept_gate", kept_gate, gate.extents());
    check_shape("swiglu", "kept_up", kept_up, gate.extents());
  }
  OperationCost cost{.flops = 0, .bytes = bytes_of(gate, 2)};
  if (h) cost.flops += 24 * static_cast<double>(gate.size()), cost.bytes += bytes_of(gate);
  if (keeps) cost.bytes += bytes_of(kept_up, 2);
  const OperationScope scope(ctx, "swiglu", cost);
  if (ctx.device() == Device::cuda) return on_device(ctx.queue(), gate, up, h, kept_gate, kept_up);
  KEEL_CALL_ISA(ctx.isa(), swiglu(gate, up, h, kept_gate, kept_up, ctx.team()));
}

}  // namespace

void swiglu(Context& ctx, View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
            View<float, 2> kept_gate, View<float, 2> kept_up) {
  forward(ctx, gate, up, h, kept_gate, kept_up, cuda::swiglu);
}

void swiglu(Context& ctx, View<const float, 2> gate, View<const float, 2> up, View<float, 2> h, View<Bf16, 2> kept_gate,
            View<Bf16, 2> kept_up) {
  forward(ctx, gate, up, h, kept_gate, kept_up, cuda::swiglu_narrow);
}

void swiglu_backward(Context& ctx, View<const float, 2> dh, View<const float, 2> gate, View<const float, 2> up,
                     View<float, 2> d_gate, View<float, 2> d_up, View<float, 2> h) {
  check_shape("swiglu_backward", "gate", gate, gate.extents());
  check_shape("swiglu_backward", "dh", dh, gate.extents());
  check_shape("swiglu_backward", "up", up, gate.extents());
  check_shape("swiglu_backward", "d_gate", d_gate, gate.extents());
  check_shape("swiglu_backward", "d_up", d_up, gate.extents());
  if (h) check_shape("swiglu_backward", "h", h, gate.extents());
  const OperationScope scope(ctx, "swiglu backward",
                             {.flops = 34 * static_cast<double>(dh.size()), .bytes = bytes_of(dh, h ? 6 : 5)});
  if (ctx.device() == Device::cuda) return cuda::swiglu_backward(ctx.queue(), dh, gate, up, d_gate, d_up, h);
  KEEL_CALL_ISA(ctx.isa(), swiglu_backward(dh, gate, up, d_gate, d_up, h, ctx.team()));
}

}  // namespace keel
