#include "keel/kernels/rope/rope.h"

#include "keel/base/error.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/rope/rope_cpu.h"
#include "keel/kernels/rope/rope_cuda.h"

namespace keel {

void rope_table(Context& ctx, HostView<const double, 1> frequencies, View<float, 2> cos, View<float, 2> sin) {
  check_shape("rope_table", "cos", cos, cos.extents());
  check_shape("rope_table", "sin", sin, cos.extents());
  if (frequencies.extent(0) != cos.extent(1)) {
    throw Error(ErrorKind::shape,
                std::to_string(frequencies.extent(0)) + " frequencies for " + std::to_string(cos.extent(1)) + " pairs",
                "rope_table");
  }
  if (ctx.device() == Device::cuda) return cuda::rope_table(ctx.queue(), frequencies.data(), cos, sin);
  KEEL_CALL_ISA(ctx.isa(), rope_table(frequencies.data(), cos, sin, ctx.team()));
}

void expect_rope_table(OperationMemory& memory, int64_t pairs) {
  memory.expect(OperationMemory::scratch, rope_table_bytes(pairs));
}

void rope(Context& ctx, View<const int32_t, 1> positions, View<const float, 2> cos, View<const float, 2> sin,
          AnyView<void, 3> x, RopeDirection direction) {
  const int64_t head_dim = x.extent(2);
  if (head_dim % 2 != 0) throw Error(ErrorKind::shape, "head_dim " + std::to_string(head_dim) + " is odd", "rope");
  check_shape("rope", "x", x, x.extents());
  check_shape("rope", "positions", positions, {x.extent(0)});
  check_shape("rope", "cos", cos, {cos.extent(0), head_dim / 2});
  check_shape("rope", "sin", sin, cos.extents());
  const OperationScope scope(ctx, "rope", {.flops = 3 * static_cast<double>(x.size()), .bytes = bytes_of(x, 2)});
  if (ctx.device() == Device::cuda) return cuda::rope(ctx.queue(), positions.data(), cos, sin, x, direction);
  const auto floats = floats_of("rope", "x", x);
  KEEL_CALL_ISA(ctx.isa(), rope(positions.data(), cos, sin, floats, direction, ctx.team()));
}

}  // namespace keel
