#include <gtest/gtest.h>

#include <limits>

#include "keel/kernels/cross_entropy/cross_entropy.h"
#include "support/contexts.h"
#include "support/numeric.h"

namespace keel {
namespace {

/// argmax of rows whose logits are exactly `logits` [N, V]: x is the identity.
std::vector<int32_t> argmax_of(Context& ctx, int64_t N, int64_t V, const std::vector<float>& logits,
                               const std::vector<float>& weights, int64_t chunk) {
  std::vector<float> x(N * N), W(V * N), scratch(chunk * V);
  for (int64_t n = 0; n < N; ++n) x[n * N + n] = 1;
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t v = 0; v < V; ++v) W[v * N + n] = logits[n * V + v];
  }
  const std::vector<int32_t> targets(N);
  testing::Guarded<int32_t> argmax(N);
  cross_entropy(ctx, {.x = {x.data(), {N, N}},
                      .W = {W.data(), {V, N}},
                      .targets = {targets.data(), {N}},
                      .weights = {weights.data(), {N}},
                      .logits = {scratch.data(), {chunk, V}},
                      .scalars = {},
                      .nll = {},
                      .argmax = {argmax.get(), {N}},
                      .dx = {},
                      .dW = {}});
  EXPECT_TRUE(argmax.intact());
  return argmax.values();
}

TEST(CrossEntropyArgmax, TheLowestIdOfTheLargest) {
  testing::Random random(3);
  for (int64_t V : {1, 2, 15, 16, 17, 64, 1000}) {
    const int64_t N = 9;
    std::vector<float> logits;
    std::vector<int32_t> expected;
    for (int64_t n = 0; n < N; ++n) {
      int64_t best = 0;
      for (int64_t v = 0; v < V; ++v) {  // few values: many ties
        logits.push_back(static_cast<float>(random.integer(-3, 3)));
        if (logits[n * V + v] > logits[n * V + best]) best = v;
      }
      expected.push_back(static_cast<int32_t>(best));
    }
    testing::for_each_context(
        [&](Context& ctx) { EXPECT_EQ(argmax_of(ctx, N, V, logits, std::vector<float>(N, 0.5F), 4), expected) << V; });
  }
}

TEST(CrossEntropyArgmax, RowsThatDoNotCountAndRowsOfNaN) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Context ctx = testing::test_context(1);
  EXPECT_EQ(argmax_of(ctx, 2, 3, {1, 2, 3, 3, 2, 1}, {0, 1}, 2), (std::vector<int32_t>{-1, 0}));
  EXPECT_EQ(argmax_of(ctx, 1, 3, {nan, nan, nan}, {1}, 1), std::vector<int32_t>{-1});
  EXPECT_EQ(argmax_of(ctx, 1, 3, {nan, -2, nan}, {1}, 1), std::vector<int32_t>{1});
}

}  // namespace
}  // namespace keel
