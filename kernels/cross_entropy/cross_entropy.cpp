#include "keel/kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <string>

#include "keel/base/error.h"
#include "keel/kernels/cross_entropy/cross_entropy_cpu.h"
#include "keel/kernels/matmul/matmul.h"

namespace keel {
namespace {

void require(bool holds, const char* what, const CrossEntropy& p) {
  if (holds) return;
  throw Error(ErrorKind::shape, what,
              "cross_entropy x [" + std::to_string(p.x.extent(0)) + ", " + std::to_string(p.x.extent(1)) + "] W [" +
                  std::to_string(p.W.extent(0)) + ", " + std::to_string(p.W.extent(1)) + "]");
}

void check(const CrossEntropy& p) {
  const int64_t N = p.x.extent(0), d = p.x.extent(1), V = p.W.extent(0);
  require(p.W.extent(1) == d, "the widths of x and of the head differ", p);
  require(V > 0 && p.W.is_dense(), "the head must be dense and not empty", p);
  require(p.targets.extent(0) == N && p.targets.is_dense(), "targets must be one a row", p);
  require(p.weights.extent(0) == N && p.weights.is_dense(), "weights must be one a row", p);
  require(p.logits.extent(0) >= 1 && p.logits.extent(1) == V && p.logits.stride(1) == 1 &&
              (p.logits.extent(0) == 1 || p.logits.stride(0) >= V),
          "logits must have a row or more, each as long as the vocabulary", p);
  require(!p.scalars || p.scalars.extent(0) == 1, "scalars must be one", p);
  require(!p.nll || (p.nll.extent(0) == N && p.nll.is_dense()), "nll must be one a row", p);
  require(!p.dx || p.dx.extents() == p.x.extents(), "dx must be as large as x", p);
  require(!p.dx || (p.dW.data() != nullptr && p.dW.extents() == p.W.extents() && p.dW.is_dense()),
          "dW must be dense and as large as the head", p);
}

/// Logits of rows [begin, end), their losses, and the gradients through them.
void chunk(Context& ctx, const CrossEntropy& p, int64_t begin, int64_t end, double& loss_sum) {
  const View<const float, 2> x = p.x.slice(begin, end);
  const View<float, 2> logits = p.logits.slice(0, end - begin);
  matmul(ctx, x, p.W, logits, Transpose::b);
  const CrossEntropyRows rows{.logits = logits.data(),
                              .stride = logits.stride(0),
                              .rows = end - begin,
                              .V = p.W.extent(0),
                              .targets = p.targets.data() + begin,
                              .weights = p.weights.data() + begin,
                              .nll = p.nll ? p.nll.data() + begin : nullptr,
                              .loss_sum = &loss_sum,
                              .gradient = static_cast<bool>(p.dx),
                              .threads = ctx.threads()};
  KEEL_CALL_ISA(ctx.isa(), cross_entropy_rows(rows));
  if (!p.dx) return;
  matmul(ctx, logits, x, p.dW, Transpose::a, true);  // before dx, which may be x
  matmul(ctx, logits, p.W, p.dx.slice(begin, end));
}

}  // namespace

void cross_entropy(Context& ctx, const CrossEntropy& p) {
  check(p);
  const int64_t N = p.x.extent(0), rows = p.logits.extent(0);
  double loss_sum = p.scalars ? p.scalars(0).loss_sum : 0;
  for (int64_t begin = 0; begin < N; begin += rows) chunk(ctx, p, begin, std::min(begin + rows, N), loss_sum);
  if (!p.scalars) return;
  p.scalars(0).loss_sum = loss_sum;
  for (int64_t n = 0; n < N; ++n) p.scalars(0).weight_sum += p.weights(n);
}

}  // namespace keel
