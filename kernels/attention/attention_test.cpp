// Attention against its reference, and the reference against its derivative.

#include <complex>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "keel/kernels/attention/attention.h"
#include "keel/kernels/attention/attention_test_support.h"

namespace keel {
namespace {

using namespace attention_testing;

std::vector<float> rounded(const std::vector<double>& x) {
  return {x.begin(), x.end()};
}

void compare(const AttentionShape& s, const Spread& spread = {}) {
  SCOPED_TRACE(describe(s));
  const Inputs in = make_inputs(s, spread);
  const Expected e = expect(s, in);
  const auto within = [](const std::vector<double>& tolerance) { return [&](int64_t i) { return tolerance[i]; }; };
  for (Isa isa : isas_to_test()) {
    SCOPED_TRACE(isa_name(isa));
    Results one;
    for (int threads : {1, 2, 3}) {
      Context context = testing::test_context(threads, isa);
      Results r;
      run_forward(context, s, in, r);
      run_backward(context, s, in, rounded(e.out), rounded(e.lse), r);
      if (threads > 1) {
        EXPECT_TRUE(r == one) << threads << " threads give other bits than one";
        continue;
      }
      one = r;
      testing::expect_close(r.out, e.out, within(e.out_tolerance), "out");
      testing::expect_close(r.lse, e.lse, within(e.lse_tolerance), "lse");
      testing::expect_close(r.dq, e.dq, within(e.dq_tolerance), "dq");
      testing::expect_close(r.dk, e.dk, within(e.dk_tolerance), "dk");
      testing::expect_close(r.dv, e.dv, within(e.dv_tolerance), "dv");
    }
  }
}

// The reference.

/// d/dx of sum d_out out for every element x, against what the reference's backward says.
void check_by_complex_step(const AttentionShape& s, const Inputs& in, std::vector<double> Expected::*gradient,
                           std::vector<float> Inputs::*input) {
  using Complex = std::complex<double>;
  Expected e;
  const auto wide = [](const std::vector<float>& x) { return testing::widen<double>(x); };
  reference::attention_backward(s, wide(in.d_out), wide(in.q), wide(in.k), wide(in.v), e.dq, e.dk, e.dv);
  for (size_t i = 0; i < (in.*input).size(); ++i) {
    const auto moved = [&](std::vector<float> Inputs::*which) {
      std::vector<Complex> x = testing::widen<Complex>(in.*which);
      if (which == input) x[i] += Complex(0, testing::kComplexStep);
      return x;
    };
    std::vector<Complex> out, lse;
    reference::attention(s, moved(&Inputs::q), moved(&Inputs::k), moved(&Inputs::v), out, lse);
    double slope = 0, magnitude = 0;
    for (size_t j = 0; j < out.size(); ++j) {
      const double term = in.d_out[j] * out[j].imag() / testing::kComplexStep;
      slope += term;
      magnitude += std::abs(term);
    }
    // Rounding in double of sums over the outputs, keys and head_dim, each term of the order of the largest.
    const double tolerance = 64 * 0x1p-53 * static_cast<double>(out.size()) * (1 + magnitude);
    ASSERT_TRUE(testing::is_close((e.*gradient)[i], slope, tolerance))
        << "element " << i << ": " << (e.*gradient)[i] << ", complex step " << slope << " +- " << tolerance;
  }
}

TEST(AttentionReference, BackwardIsTheDerivativeOfForward) {
  for (const AttentionShape& s :
       {make_shape({3, 0, 5}, 4, 2, 3), make_shape({6}, 2, 2, 2, 3), make_shape({1, 4}, 3, 1, 5, 1)}) {
    SCOPED_TRACE(describe(s));
    const Inputs in = make_inputs(s);
    check_by_complex_step(s, in, &Expected::dq, &Inputs::q);
    check_by_complex_step(s, in, &Expected::dk, &Inputs::k);
    check_by_complex_step(s, in, &Expected::dv, &Inputs::v);
  }
}

TEST(AttentionReference, EqualScoresGiveTheMeanOfTheValuesInReach) {
  AttentionShape s = make_shape({2, 5}, 2, 1, 1, 3);
  s.scale = 0;
  const std::vector<double> q(14, 1.0), k(7, 1.0), v{1, 2, 10, 20, 30, 40, 50};
  std::vector<double> out, lse;
  reference::attention(s, q, k, v, out, lse);
  const std::vector<double> means{1, 1.5, 10, 15, 20, 30, 40};
  const std::vector<double> counts{1, 2, 1, 2, 3, 3, 3};
  for (int64_t n = 0; n < 7; ++n) {
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_DOUBLE_EQ(out[n * 2 + h], means[n]);
      EXPECT_DOUBLE_EQ(lse[h * 7 + n], std::log(counts[n]));
    }
  }
}

// The CPU code against the reference.

TEST(Attention, HeadDimensions) {
  for (int64_t head_dim : {1, 2, 7, 8, 15, 16, 17, 24, 32, 33, 40, 64, 128, 150})
    compare(make_shape({37}, 2, 1, head_dim));
}

TEST(Attention, LengthsAroundTiles) {
  for (int32_t length : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
    compare(make_shape({length}, 2, 1, 8));
  }
  compare(make_shape({255}, 1, 1, 16));
  compare(make_shape({257}, 1, 1, 16));
  compare(make_shape({300}, 2, 2, 4));
  compare(make_shape({513}, 2, 1, 4));
  // Enough rows for the largest blocks with one thread, and for smaller ones with more.
  compare(make_shape({300, 200}, 4, 2, 8));
  compare(make_shape({350}, 3, 1, 4, 140));
}

TEST(Attention, ManySequences) {
  compare(make_shape({1, 1, 1, 1}, 2, 1, 8));
  compare(make_shape({0, 5, 0, 0, 64, 1, 0}, 4, 2, 16));
  compare(make_shape({129, 3, 128, 31}, 2, 1, 8));
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 40; ++i) lengths.push_back(i % 9);
  compare(make_shape(lengths, 3, 3, 8));
}

TEST(Attention, GroupsOfHeads) {
  compare(make_shape({50, 20}, 1, 1, 16));
  compare(make_shape({50, 20}, 8, 4, 8));
  compare(make_shape({50, 20}, 6, 2, 8));
  compare(make_shape({50, 20}, 5, 1, 8));
  compare(make_shape({9}, 71, 1, 4));
  compare(make_shape({3}, 150, 1, 4));
}

TEST(Attention, Windows) {
  for (int64_t window : {1, 2, 7, 8, 33, 127, 128, 129, 1000}) compare(make_shape({200, 60}, 2, 1, 8, window));
  compare(make_shape({400}, 1, 1, 4, 3));
  compare(make_shape({400}, 1, 1, 4, 200));
  for (int64_t window : {255, 256, 257, 300}) compare(make_shape({600}, 2, 1, 4, window));
  compare(make_shape({30}, 3, 1, 4, std::numeric_limits<int64_t>::max()));
}

TEST(Attention, LargeMeansAndSharpScores) {
  const AttentionShape s = make_shape({70, 150}, 4, 2, 16);
  compare(s, {.v_mean = 1000});
  compare(s, {.q_mean = 3, .k_mean = 5});
  compare(s, {.std_dev = 12});
}

TEST(Attention, UniformScoresOfPowersOfTwoAreExact) {
  AttentionShape s = make_shape({128}, 4, 2, 24);
  s.scale = 0;
  Inputs in = make_inputs(s);
  Random random(kSeed);
  for (float& x : in.v) x = static_cast<float>(random.integer(-1000, 1000));
  for (Isa isa : isas_to_test()) {
    Context context = testing::test_context(2, isa);
    Results r;
    run_forward(context, s, in, r);
    for (int64_t n = 0; n < 128; n = 2 * n + 1) {
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t d = 0; d < s.head_dim; ++d) {
          double sum = 0;
          for (int64_t j = 0; j <= n; ++j) sum += in.v[s.kv_at(j, h) + d];
          ASSERT_EQ(r.out[s.q_at(n, h) + d], sum / static_cast<double>(n + 1)) << isa_name(isa) << ", row " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace keel
