#include "keel/kernels/cross_entropy/cross_entropy.h"

#include <algorithm>

#include "keel/base/error.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/cross_entropy/cross_entropy_cpu.h"
#include "keel/kernels/cross_entropy/cross_entropy_cuda.h"
#include "keel/kernels/linear/linear.h"
#include "keel/kernels/matmul/matmul.h"

namespace keel {
namespace {

void check(const CrossEntropy& p) {
  constexpr const char* kName = "cross_entropy";
  const int64_t N = p.x.extent(0), d = p.x.extent(1), V = p.W.rows, chunk = p.logits.extent(0);
  if (V < 1) throw Error(ErrorKind::shape, "the vocabulary is empty", kName);
  if (chunk < 1) throw Error(ErrorKind::shape, "logits must have a row or more", kName);
  check_shape(kName, "x", p.x, {N, d});
  p.W.check(kName, V, d);
  check_dense(kName, "targets", p.targets, {N});
  check_dense(kName, "weights", p.weights, {N});
  check_shape(kName, "logits", p.logits, {chunk, V});
  if (p.scalars) check_dense(kName, "scalars", p.scalars, {1});
  if (p.nll) check_dense(kName, "nll", p.nll, {N});
  if (p.argmax) check_dense(kName, "argmax", p.argmax, {N});
  if (!p.dx) return;
  check_shape(kName, "dx", p.dx, {N, d});
  check_dense(kName, "dW", p.dW, {V, d});
  check_type(kName, "dx", p.dx, p.x.type());
  if (p.W.type == WeightType::q8_0) throw Error(ErrorKind::shape, "gradients of q8_0 weights", kName);
  check_type(kName, "W", p.W.numbers(), p.x.type());
  if (p.x.type() == ElementType::fp32) return;
  check_shape(kName, "d_logits", p.d_logits, {chunk, V});
  check_type(kName, "d_logits", p.d_logits, p.x.type());
}

/// Where the losses of rows go: on a CPU added to a sum at once, on a GPU kept until the end.
struct LossSum {
  double on_host = 0;
  double* of_rows = nullptr;  ///< [N] or null
};

/// What the gradient of the logits is written to.
AnyView<void, 2> gradient_of(const CrossEntropy& p, const View<float, 2>& logits) {
  if (!p.dx) return {};
  return p.d_logits ? p.d_logits.slice(0, logits.extent(0)) : AnyView<void, 2>(logits);
}

void losses_of_rows(Context& ctx, const CrossEntropy& p, const View<float, 2>& logits, int64_t begin, LossSum& sum) {
  const OperationScope scope(
      ctx, "cross_entropy",
      {.flops = 24 * static_cast<double>(logits.size()), .bytes = bytes_of(logits) + bytes_of(gradient_of(p, logits))});
  float* nll = p.nll ? p.nll.data() + begin : nullptr;
  int32_t* argmax = p.argmax ? p.argmax.data() + begin : nullptr;
  if (ctx.device() == Device::cuda) {
    return cuda::cross_entropy_rows(ctx.queue(), {.logits = logits,
                                                  .targets = p.targets.data() + begin,
                                                  .weights = p.weights.data() + begin,
                                                  .nll = nll,
                                                  .argmax = argmax,
                                                  .losses = sum.of_rows == nullptr ? nullptr : sum.of_rows + begin,
                                                  .gradient = gradient_of(p, logits)});
  }
  KEEL_CALL_ISA(ctx.isa(), cross_entropy_rows({.logits = logits.data(),
                                               .stride = logits.stride(0),
                                               .rows = logits.extent(0),
                                               .V = p.W.rows,
                                               .targets = p.targets.data() + begin,
                                               .weights = p.weights.data() + begin,
                                               .nll = nll,
                                               .argmax = argmax,
                                               .loss_sum = &sum.on_host,
                                               .gradient = static_cast<bool>(p.dx),
                                               .threads = ctx.team()}));
}

/// Logits of rows [begin, end), their losses, and the gradients through them.
void chunk(Context& ctx, const CrossEntropy& p, int64_t begin, int64_t end, LossSum& sum) {
  const AnyView<const void, 2> x = p.x.slice(begin, end);
  const View<float, 2> logits = p.logits.slice(0, end - begin);
  linear(ctx, x, p.W, logits, p.x.extent(0));
  losses_of_rows(ctx, p, logits, begin, sum);
  if (!p.dx) return;
  const AnyView<const void, 2> d_logits = gradient_of(p, logits);
  matmul(ctx, d_logits, x, p.dW, Transpose::a, true);  // before dx, which may be x
  matmul(ctx, d_logits, p.W.numbers(), p.dx.slice(begin, end));
}

void for_chunks(Context& ctx, const CrossEntropy& p, LossSum& sum) {
  const int64_t N = p.x.extent(0), rows = p.logits.extent(0);
  for (int64_t begin = 0; begin < N; begin += rows) chunk(ctx, p, begin, std::min(begin + rows, N), sum);
}

void on_device(Context& ctx, const CrossEntropy& p) {
  const int64_t N = p.x.extent(0);
  LossSum sum;
  if (p.scalars) sum.of_rows = cuda::row_losses(ctx.queue(), N);
  for_chunks(ctx, p, sum);
  if (p.scalars) cuda::cross_entropy_sums(ctx.queue(), sum.of_rows, p.weights.data(), N, p.scalars.data());
}

}  // namespace

void cross_entropy(Context& ctx, const CrossEntropy& p) {
  check(p);
  if (ctx.device() == Device::cuda) return on_device(ctx, p);
  LossSum sum{.on_host = p.scalars ? p.scalars(0).loss_sum : 0};
  for_chunks(ctx, p, sum);
  if (!p.scalars) return;
  p.scalars(0).loss_sum = sum.on_host;
  for (int64_t n = 0; n < p.x.extent(0); ++n) p.scalars(0).weight_sum += p.weights(n);
}

void expect_cross_entropy(OperationMemory& memory, int64_t N) {
  memory.expect(OperationMemory::row_losses, row_losses_bytes(N));
}

}  // namespace keel
