#pragma once

// What the tests of cross_entropy share: inputs, guarded runs, expected results with their tolerances.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "keel/kernels/cross_entropy/cross_entropy.h"
#include "keel/kernels/cross_entropy/cross_entropy_ref.h"
#include "support/numeric.h"
#include "support/test_device.h"

namespace keel::cross_entropy_testing {

using reference::CrossEntropyShape;
using testing::Guarded;
using testing::isas_to_test;
using testing::kUnitFp32;
using testing::Random;

struct Inputs {
  CrossEntropyShape s;
  std::vector<float> x, W, weights, dW;
  std::vector<int32_t> targets;
};

/// Logits of about N(0, spread^2); targets at both edges of the vocabulary; every fourth weight is 0.
inline Inputs random_inputs(CrossEntropyShape s, double spread, uint64_t seed = 5) {
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
inline Inputs integer_inputs(CrossEntropyShape s, int64_t largest, uint64_t seed = 6) {
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
inline Outputs run(const Inputs& in, const Run& r) {
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
  Context ctx = testing::test_context(r.threads, r.isa);
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

inline Expected expected(const Inputs& in, bool exact_logits) {
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

inline void expect_matches(const Inputs& in, const Expected& e, const Run& r) {
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

}  // namespace keel::cross_entropy_testing
