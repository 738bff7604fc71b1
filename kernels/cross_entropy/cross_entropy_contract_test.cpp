// What cross_entropy promises beyond its formula: rows left out, values that are not finite, the same bits, what is
// refused.

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/cross_entropy/cross_entropy.h"
#include "keel/kernels/cross_entropy/cross_entropy_test_support.h"
#include "support/weights.h"

namespace keel {
namespace {

using namespace cross_entropy_testing;

TEST(CrossEntropy, RowsOfWeightZeroAddExactZeros) {
  Inputs in = random_inputs({9, 6, 50}, 2);
  std::fill(in.weights.begin(), in.weights.end(), 0.0F);
  for (int64_t c = 0; c < 6; ++c)
    in.x[c] = std::numeric_limits<float>::max();  // an infinite logit, and its NaN, in row 0
  for (Isa isa : isas_to_test()) {
    const Outputs out = run(in, {.chunk = 4, .threads = 2, .isa = isa});
    EXPECT_EQ(out.nll, std::vector<float>(9, 0));
    EXPECT_EQ(out.dx, std::vector<float>(9 * 6, 0));
    EXPECT_EQ(out.dW, in.dW);
    EXPECT_EQ(out.loss_sum, 3);
    EXPECT_EQ(out.weight_sum, 5);
  }
}

TEST(CrossEntropy, NotFiniteLogitsReachTheLoss) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (Isa isa : isas_to_test()) {
      for (int64_t at : {0, 3, 40}) {
        Inputs in = random_inputs({3, 1, 41}, 1);
        in.x = {1, 1, 1};
        in.W[at] = bad;
        const Outputs out = run(in, {.chunk = 2, .isa = isa});
        EXPECT_TRUE(std::isnan(out.loss_sum)) << bad << " at " << at << " " << isa_name(isa);
      }
    }
  }
}

TEST(CrossEntropy, LossHasTheSameBitsForAnyNumberOfThreads) {
  const Inputs in = integer_inputs({70, 4, 333}, 3);
  for (Isa isa : isas_to_test()) {
    const Outputs one = run(in, {.chunk = 32, .threads = 1, .isa = isa});
    for (int threads : {2, 3}) {
      const Outputs many = run(in, {.chunk = 32, .threads = threads, .isa = isa});
      EXPECT_EQ(one.nll, many.nll);
      EXPECT_EQ(one.loss_sum, many.loss_sum);
    }
    EXPECT_EQ(one.loss_sum, run(in, {.chunk = 9, .threads = 2, .isa = isa}).loss_sum);
    EXPECT_EQ(one.loss_sum, run(in, {.chunk = 9, .threads = 2, .isa = isa, .gradients = false}).loss_sum);
  }
}

TEST(CrossEntropy, EmptyBatch) {
  const Inputs in = random_inputs({0, 6, 50}, 2);
  const Outputs out = run(in, {});
  EXPECT_EQ(out.loss_sum, 3);
  EXPECT_EQ(out.dW, in.dW);
}

TEST(CrossEntropy, OptionalOutputs) {
  const Inputs in = random_inputs({5, 6, 50}, 2);
  const Outputs all = run(in, {});
  std::vector<float> logits(5 * 50), nll(5);
  StepScalars scalars{};
  CrossEntropy p{.x = {in.x.data(), {5, 6}},
                 .W = {in.W.data(), {50, 6}},
                 .targets = {in.targets.data(), {5}},
                 .weights = {in.weights.data(), {5}},
                 .logits = {logits.data(), {5, 50}},
                 .scalars = {},
                 .nll = {nll.data(), {5}},
                 .dx = {},
                 .dW = {}};
  Context ctx = testing::test_context(1);
  cross_entropy(ctx, p);
  EXPECT_EQ(nll, all.nll);
  p.nll = {};
  p.scalars = {&scalars, {1}};
  cross_entropy(ctx, p);
  EXPECT_DOUBLE_EQ(scalars.loss_sum + 3, all.loss_sum);
}

TEST(CrossEntropy, RefusesShapesThatDisagree) {
  std::vector<float> f(64);
  std::vector<int32_t> t(8);
  StepScalars scalars[2];
  const CrossEntropy good{.x = {f.data(), {4, 3}},
                          .W = {f.data(), {5, 3}},
                          .targets = {t.data(), {4}},
                          .weights = {f.data(), {4}},
                          .logits = {f.data(), {2, 5}},
                          .scalars = {scalars, {1}},
                          .nll = {f.data(), {4}},
                          .dx = {f.data(), {4, 3}},
                          .dW = {f.data(), {5, 3}}};
  Context ctx = testing::test_context(1);
  const auto refusal = [&](const std::function<void(CrossEntropy&)>& spoil) -> std::string {
    CrossEntropy p = good;
    try {
      spoil(p);
      cross_entropy(ctx, p);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::shape);
      return e.what();
    }
    return "nothing thrown";
  };
  const auto W = [&](View<const float, 2> view) { return refusal([&](CrossEntropy& p) { p.W = view; }); };
  EXPECT_EQ(W({f.data(), {5, 4}}), "W is [5, 4], not [5, 3] (cross_entropy)");
  EXPECT_EQ(W({f.data(), {0, 3}}), "the vocabulary is empty (cross_entropy)");
  EXPECT_EQ(W({f.data(), {5, 3}, {4, 1}}), "W is not dense (weights)");
  const auto logits = [&](View<float, 2> view) { return refusal([&](CrossEntropy& p) { p.logits = view; }); };
  EXPECT_EQ(logits({f.data(), {0, 5}}), "logits must have a row or more (cross_entropy)");
  EXPECT_EQ(logits({f.data(), {2, 6}}), "logits is [2, 6], not [2, 5] (cross_entropy)");
  const keel::testing::RandomWeights bf16(WeightType::bf16, 5, 3, 1);
  EXPECT_EQ(refusal([&](CrossEntropy& p) { p.W = bf16.matrix(); }),
            "W is bf16, not fp32 as the other matrices (cross_entropy)");
  using ::testing::StartsWith;
  EXPECT_THAT(logits({f.data(), {2, 5}, {4, 1}}), StartsWith("a matrix product needs rows"));
  EXPECT_THAT(refusal([&](CrossEntropy& p) { p.targets = {t.data(), {3}}; }), StartsWith("targets is [3], not [4]"));
  EXPECT_THAT(refusal([&](CrossEntropy& p) { p.weights = {f.data(), {5}}; }), StartsWith("weights is"));
  EXPECT_THAT(refusal([&](CrossEntropy& p) { p.scalars = {scalars, {2}}; }), StartsWith("scalars is"));
  EXPECT_THAT(refusal([&](CrossEntropy& p) { p.nll = {f.data(), {3}}; }), StartsWith("nll is"));
  EXPECT_THAT(refusal([&](CrossEntropy& p) { p.dx = {f.data(), {4, 2}}; }), StartsWith("dx is"));
  EXPECT_THAT(refusal([&](CrossEntropy& p) { p.dW = {}; }), StartsWith("dW is"));
  EXPECT_THAT(refusal([&](CrossEntropy& p) { p.dW = {f.data(), {4, 3}}; }), StartsWith("dW is"));
}

}  // namespace
}  // namespace keel
