#include "keel/kernels/adamw/adamw.h"

#include <string>

#include "keel/base/error.h"
#include "keel/kernels/adamw/adamw_cpu.h"
#include "keel/kernels/adamw/adamw_cuda.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"

namespace keel {

void adamw(Context& ctx, std::span<const AdamwSegment> segments, double beta1, double beta2,
           View<const StepScalars, 1> scalars, View<const float, 1> gradient, View<float, 1> w, View<float, 1> m,
           View<float, 1> v, View<Bf16, 1> compute) {
  const int64_t size = w.extent(0);
  check_shape("adamw", "scalars", scalars, {1});
  check_shape("adamw", "w", w, {size});
  check_shape("adamw", "gradient", gradient, {size});
  check_shape("adamw", "m", m, {size});
  check_shape("adamw", "v", v, {size});
  if (compute) check_shape("adamw", "compute", compute, {size});
  for (const AdamwSegment& s : segments) {
    if (s.offset < 0 || s.size < 0 || s.offset > size - s.size) {
      throw Error(ErrorKind::shape,
                  "a segment of " + std::to_string(s.size) + " elements from " + std::to_string(s.offset) +
                      " is not part of " + std::to_string(size),
                  "adamw");
    }
  }
  const OperationScope scope(ctx, "adamw",
                             {.flops = 14.0 * static_cast<double>(size), .bytes = bytes_of(w, 7) + bytes_of(compute)});
  const AdamwArrays arrays{gradient.data(), w.data(), m.data(), v.data(), compute.data()};
  if (ctx.device() == Device::cuda) {
    return cuda::adamw(ctx.queue(), segments, beta1, beta2, scalars.data(), arrays);
  }
  (void)floats_of("adamw", "compute", AnyView<void, 1>(compute));
  KEEL_CALL_ISA(ctx.isa(), adamw(segments.data(), static_cast<int64_t>(segments.size()), beta1, beta2, *scalars.data(),
                                 arrays, ctx.team()));
}

void expect_adamw(OperationMemory& memory, std::span<const AdamwSegment> segments) {
  int64_t pieces = 0;
  for (const AdamwSegment& s : segments) pieces += chunk_count(s.size, AdamwPiece::kElements);
  memory.expect(OperationMemory::segments, pieces * static_cast<int64_t>(sizeof(AdamwPiece)));
}

}  // namespace keel
