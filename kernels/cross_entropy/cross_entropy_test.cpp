#include "keel/kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <complex>
#include <string>

#include <gtest/gtest.h>

#include "keel/kernels/cross_entropy/cross_entropy_ref.h"
#include "keel/kernels/cross_entropy/cross_entropy_test_support.h"

namespace keel {
namespace {

using namespace cross_entropy_testing;

TEST(CrossEntropyReference, BackwardIsTheComplexStepOfForward) {
  using Complex = std::complex<double>;
  const CrossEntropyShape s{5, 3, 7};
  Random random(1);
  std::vector<double> weights{1, 0.5, 0, 2, 1};
  const std::vector<int32_t> targets{0, 6, 3, 2, 2};
  std::vector<Complex> parameters(s.N * s.d + s.V * s.d);
  for (Complex& p : parameters) p = random.normal();
  const auto x = [&] { return std::vector<Complex>(parameters.begin(), parameters.begin() + s.N * s.d); };
  const auto W = [&] { return std::vector<Complex>(parameters.begin() + s.N * s.d, parameters.end()); };
  std::vector<Complex> dx, dW(s.V * s.d), nll;
  reference::cross_entropy_backward(s, x(), W(), targets, weights, dx, dW);
  dx.insert(dx.end(), dW.begin(), dW.end());
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] += Complex(0, testing::kComplexStep);
    const double slope = reference::cross_entropy(s, x(), W(), targets, weights, nll).imag() / testing::kComplexStep;
    parameters[i] -= Complex(0, testing::kComplexStep);
    EXPECT_NEAR(dx[i].real(), slope, 1e-14) << i;
  }
}

TEST(CrossEntropy, MatchesReferenceOnEveryInstructionSet) {
  for (const CrossEntropyShape s : {CrossEntropyShape{1, 1, 1}, {1, 8, 2}, {7, 5, 17}, {33, 24, 101}, {20, 16, 1027}}) {
    const Inputs in = random_inputs(s, 3);
    const Expected e = expected(in, false);
    for (Isa isa : isas_to_test()) {
      for (int threads : {1, 2, 3}) expect_matches(in, e, {.chunk = 16, .threads = threads, .isa = isa});
    }
  }
}

TEST(CrossEntropy, AnyChunkSize) {
  const Inputs in = random_inputs({37, 12, 65}, 2);
  const Expected e = expected(in, false);
  for (int64_t chunk : {1, 2, 7, 36, 37, 38, 100}) {
    expect_matches(in, e, {.chunk = chunk, .threads = 2});
    expect_matches(in, e, {.chunk = chunk, .threads = 2, .gradients = false});
  }
}

TEST(CrossEntropy, MoreRowsThanOneBlockOfLosses) {
  const Inputs in = random_inputs({600, 4, 9}, 2);
  const Expected e = expected(in, false);
  for (int64_t chunk : {300, 1000}) expect_matches(in, e, {.chunk = chunk, .threads = 2});
}

TEST(CrossEntropy, LargeVocabulary) {
  const Inputs in = random_inputs({3, 8, 32000}, 4);
  const Expected e = expected(in, false);
  for (Isa isa : isas_to_test()) expect_matches(in, e, {.chunk = 2, .threads = 2, .isa = isa});
}

/// More than a GPU's threads sum up in fp32.
TEST(CrossEntropy, HugeVocabulary) {
  for (const int64_t misalign : {0, 1}) {
    const Inputs in = random_inputs({13, 2, 300'001}, 4);  // by a product
    expect_matches(in, expected(in, false), {.chunk = 13, .threads = 2, .logits_pad = 3, .misalign = misalign});
  }
}

TEST(CrossEntropy, InPlaceStridedAndMisaligned) {
  const Inputs in = random_inputs({29, 10, 35}, 2);
  const Expected e = expected(in, false);
  for (bool in_place : {false, true}) {
    for (int64_t misalign : {0, 1, 7}) {
      expect_matches(in, e, {.chunk = 8, .threads = 2, .in_place = in_place, .logits_pad = 13, .misalign = misalign});
    }
  }
}

/// Exact logits, so the softmax is held to its own rounding: a softmax of bf16 or without the maximum would not pass.
TEST(CrossEntropy, ExactLogits) {
  const Inputs in = integer_inputs({40, 6, 333}, 2);
  const Expected e = expected(in, true);
  for (Isa isa : isas_to_test()) expect_matches(in, e, {.chunk = 11, .threads = 2, .isa = isa});
}

/// One logit of +-10000 among zeros, at the target and elsewhere.
TEST(CrossEntropy, ExtremeLogits) {
  const CrossEntropyShape s{4, 1, 19};
  Inputs in{
      s, {100, -100, 100, -100}, std::vector<float>(s.V, 0), {1, 1, 2, 0.5}, std::vector<float>(s.V, 0), {4, 4, 0, 18}};
  in.W[4] = 100;
  const Expected e = expected(in, true);
  EXPECT_EQ(e.exact.nll[0], 0);
  EXPECT_EQ(e.exact.nll[2], 10000);
  for (Isa isa : isas_to_test()) expect_matches(in, e, {.chunk = 3, .isa = isa});
}

/// Logits 0, -1 .. -149 of one row with x = 1, so that dW is their gradient: nothing in it may be subnormal, or become
/// so by a product with a moderate factor.
TEST(CrossEntropy, GradientsVanishBeforeTheyAreSubnormal) {
  const int64_t V = 150;
  Inputs in{{1, 1, V}, {1}, std::vector<float>(V), {1}, std::vector<float>(V, 0), {0}};
  for (int64_t v = 0; v < V; ++v) in.W[v] = static_cast<float>(-v);
  for (Isa isa : isas_to_test()) {
    const Outputs out = run(in, {.chunk = 1, .isa = isa});
    EXPECT_GT(out.dW[66], 0.0F);
    for (int64_t v = 67; v < V; ++v) EXPECT_EQ(out.dW[v], 0.0F) << v << " " << isa_name(isa);
  }
}

TEST(CrossEntropy, AllLogitsEqual) {
  for (int64_t V : {1, 2, 512, 513, 4096}) {
    const Inputs in{{2, 1, V},
                    {0, 1},
                    std::vector<float>(V, 7),
                    {1, 1},
                    std::vector<float>(V, 0),
                    {0, static_cast<int32_t>(V - 1)}};
    const Expected e = expected(in, true);
    for (Isa isa : isas_to_test()) expect_matches(in, e, {.chunk = 2, .isa = isa});
  }
}

}  // namespace
}  // namespace keel
