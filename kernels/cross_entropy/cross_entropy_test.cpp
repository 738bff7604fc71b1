#include "keel/kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/cross_entropy/cross_entropy_ref.h"
#include "support/numeric.h"

namespace keel {
namespace {

using reference::CrossEntropyShape;
using testing::Guarded;
using testing::kUnitFp32;
using testing::Random;

struct Inputs {
  CrossEntropyShape s;
  std::vector<float> x, W, weights, dW;
  std::vector<int32_t> targets;
};

/// Logits of about N(0, spread^2); targets at both edges of the vocabulary; every fourth weight is 0.
Inputs random_inputs(CrossEntropyShape s, double spread, uint64_t seed = 5) {
  Random random(seed);
  Inputs in{s,
            random.normals(s.N * s.d),
            random.normals(s.V * s.d, 0, spread / std::sqrt(static_cast<double>(s.d))),
            std::vector<float>(s.N),
            random.normals(s.V * s.d),
            std::vector<int32_t>(s.N)};
  for (int64_t n = 0; n < s.N; ++n) {
    in.weights[n] = n % 4 == 3 ? 0.0F : static_cast<float>(random.uniform(0.25, 2));
    in.targets[n] = static_cast<int32_t>(n % 5 == 0 ? 0 : n % 5 == 1 ? s.V - 1 : random.integer(0, s.V - 1));
  }
  return in;
}

/// Small integers: every logit is exact in fp32, in whatever order it is summed.
Inputs integer_inputs(CrossEntropyShape s, int64_t largest, uint64_t seed = 6) {
  Inputs in = random_inputs(s, 1, seed);
  Random random(seed);
  for (float& value : in.x) value = static_cast<float>(random.integer(-largest, largest));
  for (float& value : in.W) value = static_cast<float>(random.integer(-largest, largest));
  return in;
}

struct Run {
  int64_t chunk = 16;
  int threads = 1;
  Isa isa = best_isa();
  bool gradients = true, in_place = false;
  int64_t logits_pad = 0, misalign = 0;

  std::string name() const {
    return "chunk " + std::to_string(chunk) + " threads " + std::to_string(threads) + " " + isa_name(isa) +
           (gradients ? "" : " no gradients") + (in_place ? " in place" : "") + " pad " + std::to_string(logits_pad) +
           " misalign " + std::to_string(misalign);
  }
};

struct Outputs {
  std::vector<float> nll, dx, dW;
  double loss_sum, weight_sum;
};

/// loss_sum and weight_sum start at 3 and 5, as if an earlier micro-batch had left them.
Outputs run(const Inputs& in, const Run& r) {
  SCOPED_TRACE(r.name());
  const auto [N, d, V] = in.s;
  Guarded<float> x(N * d, r.misalign), nll(N, r.misalign), dx(N * d, r.misalign), dW(V * d, r.misalign);
  Guarded<float> logits(r.chunk * (V + r.logits_pad), r.misalign);
  x.assign(in.x);
  dW.assign(in.dW);
  StepScalars scalars{};
  scalars.loss_sum = 3;
  scalars.weight_sum = 5;
  CrossEntropy p{.x = {x.get(), {N, d}},
                 .W = {in.W.data(), {V, d}},
                 .targets = {in.targets.data(), {N}},
                 .weights = {in.weights.data(), {N}},
                 .logits = {logits.get(), {r.chunk, V}, {V + r.logits_pad, 1}},
                 .scalars = {&scalars, {1}},
                 .nll = {nll.get(), {N}},
                 .dx = {},
                 .dW = {}};
  if (r.gradients) {
    p.dx = {r.in_place ? x.get() : dx.get(), {N, d}};
    p.dW = {dW.get(), {V, d}};
  }
  Context ctx(r.threads, r.isa);
  cross_entropy(ctx, p);
  for (const auto* buffer : {&x, &nll, &dx, &dW, &logits}) EXPECT_TRUE(buffer->intact());
  if (!r.in_place) {
    EXPECT_EQ(x.values(), in.x);
  }
  return {nll.values(), r.in_place ? x.values() : dx.values(), dW.values(), scalars.loss_sum, scalars.weight_sum};
}

/// What fp32 may do to each result, from the formulas of the header with u = 2^-24:
///   logit l = x.W is off by e = 4 u (|l| + sqrt(d) sum |x W|), or not at all if `exact_logits`;
///   exp(l - max) is off by e, by u |l - max| from the subtraction, by 1 ulp and by 2^-96; blocks of 512 are summed in
///   fp32.
struct Expected {
  Outputs exact;
  std::vector<double> nll, dx, dW;  // tolerances
  double loss_sum = 0;
};

Expected expected(const Inputs& in, bool exact_logits) {
  const CrossEntropyShape s = in.s;
  const auto x = testing::widen<double>(in.x), W = testing::widen<double>(in.W);
  const auto weights = testing::widen<double>(in.weights);
  std::vector<double> nll, dx, dW = testing::widen<double>(in.dW);
  const double loss = reference::cross_entropy(s, x, W, in.targets, weights, nll);
  reference::cross_entropy_backward(s, x, W, in.targets, weights, dx, dW);
  const std::vector<double> logits = reference::head_logits(s, x, W);
  const std::vector<double> gradient = reference::logits_gradient(s, logits, in.targets, weights);

  Expected e;
  e.exact = {{nll.begin(), nll.end()}, {dx.begin(), dx.end()}, {dW.begin(), dW.end()}, 3 + loss, 5};
  for (double w : weights) e.exact.weight_sum += w;
  const double sum_error = testing::sum_tolerance(1, 512, 1);
  std::vector<double> d_error(s.N * s.V, 0);
  e.nll.assign(s.N, 0);
  for (int64_t n = 0; n < s.N; ++n) {
    if (weights[n] == 0) continue;
    const double* l = &logits[n * s.V];
    const double largest = *std::max_element(l, l + s.V);
    const double lse = reference::logsumexp(s, logits, n);
    std::vector<double> logit_error(s.V, 0);
    double mean_error = 0;
    for (int64_t v = 0; v < s.V; ++v) {
      double sum_abs = 0;
      for (int64_t c = 0; c < s.d; ++c) sum_abs += std::abs(x[n * s.d + c] * W[v * s.d + c]);
      if (!exact_logits) logit_error[v] = testing::sum_tolerance(l[v], s.d, sum_abs);
      mean_error += std::exp(l[v] - lse) * (logit_error[v] + kUnitFp32 * (largest - l[v]));
    }
    const double lse_error = mean_error + sum_error;
    e.nll[n] = lse_error + logit_error[in.targets[n]] + 4 * kUnitFp32 * std::abs(nll[n]);
    e.loss_sum += weights[n] * e.nll[n];
    for (int64_t v = 0; v < s.V; ++v) {
      const double p = std::exp(l[v] - lse);
      const double relative = std::expm1(logit_error[v] + kUnitFp32 * (largest - l[v]) + lse_error + 4 * kUnitFp32);
      d_error[n * s.V + v] = weights[n] * (p * relative + (v == in.targets[n] ? 4 * kUnitFp32 : 0) + 0x1p-96);
    }
  }
  e.dx.assign(s.N * s.d, 0);
  e.dW.assign(s.V * s.d, 0);
  std::vector<double> dx_abs(s.N * s.d, 0), dW_abs = testing::widen<double>(in.dW);
  for (double& a : dW_abs) a = std::abs(a);
  for (int64_t n = 0; n < s.N; ++n) {
    for (int64_t v = 0; v < s.V; ++v) {
      const double g = std::abs(gradient[n * s.V + v]), g_error = d_error[n * s.V + v];
      for (int64_t c = 0; c < s.d; ++c) {
        e.dx[n * s.d + c] += g_error * std::abs(W[v * s.d + c]);
        e.dW[v * s.d + c] += g_error * std::abs(x[n * s.d + c]);
        dx_abs[n * s.d + c] += g * std::abs(W[v * s.d + c]);
        dW_abs[v * s.d + c] += g * std::abs(x[n * s.d + c]);
      }
    }
  }
  for (int64_t i = 0; i < s.N * s.d; ++i) e.dx[i] += testing::sum_tolerance(dx[i], s.V, dx_abs[i]);
  for (int64_t i = 0; i < s.V * s.d; ++i) e.dW[i] += testing::sum_tolerance(dW[i], s.N + 1, dW_abs[i]);
  return e;
}

void expect_matches(const Inputs& in, const Expected& e, const Run& r) {
  SCOPED_TRACE("N " + std::to_string(in.s.N) + " d " + std::to_string(in.s.d) + " V " + std::to_string(in.s.V) + " " +
               r.name());
  const Outputs out = run(in, r);
  testing::expect_close(
      out.nll, e.exact.nll, [&](int64_t i) { return e.nll[i]; }, "nll");
  EXPECT_TRUE(testing::is_close(out.loss_sum, e.exact.loss_sum, e.loss_sum + 1e-12 * std::abs(e.exact.loss_sum)))
      << out.loss_sum << ", expected " << e.exact.loss_sum << " +- " << e.loss_sum;
  EXPECT_DOUBLE_EQ(out.weight_sum, e.exact.weight_sum);
  if (!r.gradients) return;
  testing::expect_close(
      out.dx, e.exact.dx, [&](int64_t i) { return e.dx[i] + kUnitFp32 * std::abs(e.exact.dx[i]); }, "dx");
  testing::expect_close(
      out.dW, e.exact.dW, [&](int64_t i) { return e.dW[i] + kUnitFp32 * std::abs(e.exact.dW[i]); }, "dW");
}

std::vector<Isa> isas() {
  std::vector<Isa> available;
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (isa_available(isa)) available.push_back(isa);
  }
  return available;
}

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
    for (Isa isa : isas()) {
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
  for (Isa isa : isas()) expect_matches(in, e, {.chunk = 2, .threads = 2, .isa = isa});
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
  for (Isa isa : isas()) expect_matches(in, e, {.chunk = 11, .threads = 2, .isa = isa});
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
  for (Isa isa : isas()) expect_matches(in, e, {.chunk = 3, .isa = isa});
}

/// Logits 0, -1 .. -149 of one row with x = 1, so that dW is their gradient: nothing in it may be subnormal, or become
/// so by a product with a moderate factor.
TEST(CrossEntropy, GradientsVanishBeforeTheyAreSubnormal) {
  const int64_t V = 150;
  Inputs in{{1, 1, V}, {1}, std::vector<float>(V), {1}, std::vector<float>(V, 0), {0}};
  for (int64_t v = 0; v < V; ++v) in.W[v] = static_cast<float>(-v);
  for (Isa isa : isas()) {
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
    for (Isa isa : isas()) expect_matches(in, e, {.chunk = 2, .isa = isa});
  }
}

TEST(CrossEntropy, RowsOfWeightZeroAddExactZeros) {
  Inputs in = random_inputs({9, 6, 50}, 2);
  std::fill(in.weights.begin(), in.weights.end(), 0.0F);
  for (int64_t c = 0; c < 6; ++c)
    in.x[c] = std::numeric_limits<float>::max();  // an infinite logit, and its NaN, in row 0
  for (Isa isa : isas()) {
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
    for (Isa isa : isas()) {
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
  for (Isa isa : isas()) {
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
  Context ctx(1);
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
  Context ctx(1);
  const auto refusal = [&](const std::function<void(CrossEntropy&)>& spoil) -> std::string {
    CrossEntropy p = good;
    spoil(p);
    try {
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
  EXPECT_EQ(W({f.data(), {5, 3}, {4, 1}}), "W is not dense (cross_entropy)");
  const auto logits = [&](View<float, 2> view) { return refusal([&](CrossEntropy& p) { p.logits = view; }); };
  EXPECT_EQ(logits({f.data(), {0, 5}}), "logits must have a row or more (cross_entropy)");
  EXPECT_EQ(logits({f.data(), {2, 6}}), "logits is [2, 6], not [2, 5] (cross_entropy)");
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
