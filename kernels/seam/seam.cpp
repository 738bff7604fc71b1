#include "keel/kernels/seam/seam.h"

#include "keel/base/error.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/seam/seam_cpu.h"
#include "keel/kernels/seam/seam_cuda.h"

namespace keel {
namespace {

template <class Seam>
void check_layer_norm(const char* name, const Seam& seam) {
  if (!seam.outer_gain) throw Error(ErrorKind::shape, "outer_bias without outer_gain", name);
  if (seam.inner_gain) throw Error(ErrorKind::shape, "an inner norm behind a LayerNorm", name);
  check_shape(name, "outer_bias", seam.outer_bias, {seam.outer_gain.extent(0)});
}

}  // namespace

void seam_forward(Context& ctx, const SeamForward& seam) {
  constexpr const char* kName = "seam_forward";
  const int64_t rows = seam.x.extent(0), d = seam.x.extent(1);
  check_shape(kName, "x", seam.x, {rows, d});
  if (seam.F) check_shape(kName, "F", seam.F, {rows, d});
  check_shape(kName, "a", seam.a, {1});
  check_shape(kName, "b", seam.b, {1});
  check_shape(kName, "y", seam.y, {rows, d});
  if (seam.skip_scale) check_shape(kName, "skip_scale", seam.skip_scale, {d});
  if (seam.branch_scale) check_shape(kName, "branch_scale", seam.branch_scale, {d});
  if (seam.outer_gain) {
    check_shape(kName, "outer_gain", seam.outer_gain, {d});
    check_shape(kName, "outer_r", seam.outer_r, {rows});
  }
  if (seam.outer_bias) {
    check_layer_norm(kName, seam);
    check_shape(kName, "outer_mean", seam.outer_mean, {rows});
  }
  if (seam.inner_gain) {
    check_shape(kName, "inner_gain", seam.inner_gain, {d});
    check_shape(kName, "inner_r", seam.inner_r, {rows});
    check_shape(kName, "u", seam.u, {rows, d});
  } else if (seam.u) {
    check_shape(kName, "u", seam.u, {rows, d});
    check_type(kName, "u", seam.u, ElementType::bf16);  // else it is y itself
  }
  if (seam.F) check_type(kName, "u", seam.u, seam.F.type());
  const OperationScope scope(
      ctx, "seam",
      {.flops = (3 + (seam.outer_gain ? 4 : 0) + (seam.inner_gain ? 4 : 0)) * static_cast<double>(seam.x.size()),
       .bytes = bytes_of(seam.x, 2) + bytes_of(seam.F) + bytes_of(seam.u)});
  if (ctx.device() == Device::cuda) return cuda::seam_forward(ctx.queue(), seam);
  SeamForward on_cpu = seam;
  on_cpu.F = seam.F ? floats_of(kName, "F", seam.F) : seam.x;
  on_cpu.u = floats_of(kName, "u", seam.u);
  KEEL_CALL_ISA(ctx.isa(), seam_forward(on_cpu, ctx.team()));
}

void seam_inner_again(Context& ctx, View<const float, 2> y, View<const float, 1> inner_gain, float inner_factor,
                      View<const float, 1> inner_r, AnyView<void, 2> u) {
  constexpr const char* kName = "seam_inner_again";
  const int64_t rows = y.extent(0), d = y.extent(1);
  check_shape(kName, "y", y, {rows, d});
  check_shape(kName, "inner_gain", inner_gain, {d});
  check_shape(kName, "inner_r", inner_r, {rows});
  check_shape(kName, "u", u, {rows, d});
  const OperationScope scope(ctx, "seam",
                             {.flops = 2 * static_cast<double>(y.size()), .bytes = bytes_of(y) + bytes_of(u)});
  if (ctx.device() == Device::cuda)
    return cuda::seam_inner_again(ctx.queue(), y, inner_gain.data(), inner_factor, inner_r.data(), u);
  KEEL_CALL_ISA(ctx.isa(), seam_inner_again(y, inner_gain.data(), inner_factor, inner_r.data(),
                                            floats_of(kName, "u", u), ctx.team()));
}

bool seam_has_vectors(const SeamBackward& seam) {
  return seam.outer_bias || seam.skip_scale || seam.branch_scale;
}

void seam_backward(Context& ctx, const SeamBackward& given) {
  constexpr const char* kName = "seam_backward";
  SeamBackward seam = given;
  const int64_t rows = seam.dx.extent(0), d = seam.dx.extent(1);
  check_shape(kName, "dx", seam.dx, {rows, d});
  check_shape(kName, "dF", seam.dF, {rows, d});
  check_shape(kName, "a", seam.a, {1});
  check_shape(kName, "b", seam.b, {1});
  check_shape(kName, "partial", seam.partial, {chunk_count(rows), seam_partial_columns(d, seam_has_vectors(seam))});
  if (seam.skip_scale || seam.d_skip_scale) check_shape(kName, "skip_scale", seam.skip_scale, {d});
  if (seam.branch_scale || seam.d_branch_scale) check_shape(kName, "branch_scale", seam.branch_scale, {d});
  if (seam.d_skip_scale) check_shape(kName, "d_skip_scale", seam.d_skip_scale, {d});
  if (seam.d_branch_scale) check_shape(kName, "d_branch_scale", seam.d_branch_scale, {d});
  if (seam.Ds) check_shape(kName, "Ds", seam.Ds, {rows, d});
  if (seam.Du) check_shape(kName, "Du", seam.Du, {rows, d});
  if (seam.d_a) check_shape(kName, "d_a", seam.d_a, {1});
  if (seam.d_b) check_shape(kName, "d_b", seam.d_b, {1});
  if (seam.outer_gain) {
    check_shape(kName, "outer_gain", seam.outer_gain, {d});
    check_shape(kName, "outer_r", seam.outer_r, {rows});
    check_shape(kName, "d_outer_gain", seam.d_outer_gain, {d});
  }
  if (seam.outer_bias) {
    check_layer_norm(kName, seam);
    check_shape(kName, "outer_mean", seam.outer_mean, {rows});
    check_shape(kName, "d_outer_bias", seam.d_outer_bias, {d});
  }
  if (seam.inner_gain) {
    check_shape(kName, "inner_gain", seam.inner_gain, {d});
    check_shape(kName, "inner_r", seam.inner_r, {rows});
    check_shape(kName, "d_inner_gain", seam.d_inner_gain, {d});
  }
  if (seam.outer_gain || seam.d_a || seam.d_skip_scale) check_shape(kName, "x", seam.x, {rows, d});
  if (seam.outer_gain || seam.d_b || seam.d_branch_scale) check_shape(kName, "F", seam.F, {rows, d});
  check_type(kName, "F", seam.F, seam.dF.type());
  check_type(kName, "Du", seam.Du, seam.dF.type());
  if (!seam.outer_gain && seam.inner_gain) check_shape(kName, "y", seam.y, {rows, d});
  if (rows * d == 0) return;
  if (!seam.Ds && !seam.Du) throw Error(ErrorKind::shape, "Ds and Du are both missing", kName);
  // Without a gradient of its output an inner norm passes nothing on.
  if (!seam.Du) seam.inner_gain = {};
  const OperationScope scope(
      ctx, "seam backward",
      cost_of_rows(seam.sums, {.flops = (2 + (seam.outer_gain ? 14 : 0) + (seam.inner_gain ? 12 : 0)) *
                                        static_cast<double>(seam.dx.size()),
                               .bytes = bytes_of(seam.dx) + bytes_of(seam.dF) + bytes_of(seam.Ds) + bytes_of(seam.Du) +
                                        (seam.outer_gain ? bytes_of(seam.x) + bytes_of(seam.F) : bytes_of(seam.y))}));
  if (ctx.device() == Device::cuda) return cuda::seam_backward(ctx.queue(), seam);
  (void)floats_of(kName, "dF", seam.dF);
  KEEL_CALL_ISA(ctx.isa(), seam_backward(seam, ctx.team()));
}

}  // namespace keel
