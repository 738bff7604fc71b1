#include "keel/kernels/swiglu/swiglu.h"

#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/swiglu/swiglu_cpu.h"
#include "keel/kernels/swiglu/swiglu_cuda.h"

namespace keel {

namespace {

template <class Kept>
void forward_on_cpu(Context& ctx, const View<const float, 2>& gate, const View<const float, 2>& up,
                    const View<float, 2>& h, const View<Kept, 2>& kept_gate, const View<Kept, 2>& kept_up) {
  KEEL_CALL_ISA(ctx.isa(), swiglu(gate, up, h, kept_gate, kept_up, ctx.team()));
}

}  // namespace

void swiglu(Context& ctx, AnyView<const void, 2> gate, AnyView<const void, 2> up, AnyView<void, 2> h,
            AnyView<void, 2> kept_gate, AnyView<void, 2> kept_up) {
  constexpr const char* kName = "swiglu";
  check_shape(kName, "gate", gate, gate.extents());
  check_shape(kName, "up", up, gate.extents());
  check_type(kName, "up", up, gate.type());
  const bool keeps = kept_gate || kept_up;
  if (h || !keeps) check_shape(kName, "h", h, gate.extents());
  check_type(kName, "h", h, gate.type());
  if (keeps) {
    check_shape(kName, "kept_gate", kept_gate, gate.extents());
    check_shape(kName, "kept_up", kept_up, gate.extents());
    check_type(kName, "kept_up", kept_up, kept_gate.type());
    if (gate.type() == ElementType::bf16) check_type(kName, "kept_gate", kept_gate, gate.type());
  }
  OperationCost cost{.flops = 0, .bytes = bytes_of(gate, 2)};
  if (h) cost.flops += 24 * static_cast<double>(gate.size()), cost.bytes += bytes_of(gate);
  if (keeps) cost.bytes += bytes_of(kept_up, 2);
  const OperationScope scope(ctx, "swiglu", cost);
  if (ctx.device() == Device::cuda) return cuda::swiglu(ctx.queue(), gate, up, h, kept_gate, kept_up);
  const auto from = floats_of(kName, "gate", gate);
  if (keeps && kept_up.type() == ElementType::bf16) {
    return forward_on_cpu(ctx, from, up.as<float>(), h.as<float>(), kept_gate.as<Bf16>(), kept_up.as<Bf16>());
  }
  forward_on_cpu(ctx, from, up.as<float>(), h.as<float>(), kept_gate.as<float>(), kept_up.as<float>());
}

void swiglu_backward(Context& ctx, AnyView<const void, 2> dh, AnyView<const void, 2> gate, AnyView<const void, 2> up,
                     AnyView<void, 2> d_gate, AnyView<void, 2> d_up, AnyView<void, 2> h) {
  constexpr const char* kName = "swiglu_backward";
  check_shape(kName, "gate", gate, gate.extents());
  check_shape(kName, "dh", dh, gate.extents());
  check_shape(kName, "up", up, gate.extents());
  check_shape(kName, "d_gate", d_gate, gate.extents());
  check_shape(kName, "d_up", d_up, gate.extents());
  if (h) check_shape(kName, "h", h, gate.extents());
  check_type(kName, "dh", dh, gate.type());
  check_type(kName, "up", up, gate.type());
  check_type(kName, "d_gate", d_gate, gate.type());
  check_type(kName, "d_up", d_up, gate.type());
  check_type(kName, "h", h, gate.type());
  const OperationScope scope(ctx, "swiglu backward",
                             {.flops = 34 * static_cast<double>(dh.size()), .bytes = bytes_of(dh, h ? 6 : 5)});
  if (ctx.device() == Device::cuda) return cuda::swiglu_backward(ctx.queue(), dh, gate, up, d_gate, d_up, h);
  const auto from = floats_of(kName, "dh", dh);
  KEEL_CALL_ISA(ctx.isa(), swiglu_backward(from, gate.as<float>(), up.as<float>(), d_gate.as<float>(), d_up.as<float>(),
                                           h.as<float>(), ctx.team()));
}

}  // namespace keel
