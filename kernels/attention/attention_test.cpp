#include "keel/kernels/attention/attention.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/attention/attention_ref.h"
#include "support/numeric.h"

namespace keel {
namespace {

using reference::AttentionShape;
using testing::Guarded;
using testing::kUnitFp32;
using testing::Random;

constexpr uint64_t kSeed = 20240607;

std::vector<Isa> isas() {
  std::vector<Isa> found;
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (isa_available(isa)) found.push_back(isa);
  }
  return found;
}

AttentionShape make_shape(const std::vector<int32_t>& lengths, int64_t heads, int64_t kv_heads, int64_t head_dim,
                          int64_t window = 0) {
  std::vector<int32_t> cu_seqlens{0};
  for (int32_t n : lengths) cu_seqlens.push_back(cu_seqlens.back() + n);
  return {cu_seqlens, heads, kv_heads, head_dim, 1 / std::sqrt(static_cast<double>(head_dim)), window};
}

std::string describe(const AttentionShape& s) {
  std::string text = "lengths";
  for (size_t i = 1; i < s.cu_seqlens.size(); ++i) {
    text.append(" ").append(std::to_string(s.cu_seqlens[i] - s.cu_seqlens[i - 1]));
  }
  return text + ", heads " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + ", head_dim " +
         std::to_string(s.head_dim) + ", window " + std::to_string(s.window) + ", seed " + std::to_string(kSeed);
}

struct Inputs {
  std::vector<float> q, k, v, d_out;
};

struct Spread {
  double q_mean = 0, k_mean = 0, v_mean = 0, std_dev = 1;
};

Inputs make_inputs(const AttentionShape& s, const Spread& spread = {}) {
  Random random(kSeed);
  const int64_t q = s.tokens() * s.heads * s.head_dim, k = s.tokens() * s.kv_heads * s.head_dim;
  return {random.normals(q, spread.q_mean, spread.std_dev), random.normals(k, spread.k_mean, spread.std_dev),
          random.normals(k, spread.v_mean), random.normals(q)};
}

/// Results in double and how far fp32 may be from them.
struct Expected {
  std::vector<double> out, lse, dq, dk, dv;
  std::vector<double> out_tolerance, lse_tolerance, dq_tolerance, dk_tolerance, dv_tolerance;
};

double sum_of_magnitudes(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::abs(a[i] * b[i]);
  return sum;
}

double dot(const double* a, const double* b, int64_t n) {
  return std::inner_product(a, a + n, b, 0.0);
}

/// Tolerances follow the errors through the formulas: 4 (u |y| + sqrt(n) u sum |a b|) for every sum of n products, a
/// relative error of p = exp(x) from the error of x, and the errors of factors times the other factors.
Expected expect(const AttentionShape& s, const Inputs& in) {
  const std::vector<double> q = testing::widen<double>(in.q), k = testing::widen<double>(in.k),
                            v = testing::widen<double>(in.v), d_out = testing::widen<double>(in.d_out);
  Expected e;
  reference::attention(s, q, k, v, e.out, e.lse);
  reference::attention_backward(s, d_out, q, k, v, e.dq, e.dk, e.dv);
  e.out_tolerance.assign(q.size(), 0);
  e.lse_tolerance.assign(e.lse.size(), 0);
  e.dq_tolerance.assign(q.size(), 0);
  e.dk_tolerance.assign(k.size(), 0);
  e.dv_tolerance.assign(k.size(), 0);
  constexpr double u = kUnitFp32;
  const int64_t dim = s.head_dim;
  const double root_dim = std::sqrt(static_cast<double>(dim));
  for (int64_t n = 0; n < s.tokens(); ++n) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t row = s.q_at(n, h), first = s.first_key(n);
      const std::vector<double> scores = reference::attention_scores(s, q, k, n, h);
      const double lse = e.lse[h * s.tokens() + n];
      const double root_keys = std::sqrt(static_cast<double>(scores.size()));
      // A key's gradient sums over the queries that see it, at most all of its sequence, and the heads of its group.
      const double root_rows = std::sqrt(static_cast<double>(s.tokens() * s.heads / s.kv_heads));
      const double delta = dot(&d_out[row], &e.out[row], dim);
      const double delta_error = 4 * u * (root_dim + 1) * sum_of_magnitudes(&d_out[row], &e.out[row], dim);
      double& lse_tolerance = e.lse_tolerance[h * s.tokens() + n];
      lse_tolerance = 4 * u * (std::abs(lse) + root_keys);
      for (int64_t d = 0; d < dim; ++d) {
        e.out_tolerance[row + d] += 4 * u * std::abs(e.out[row + d]);
        e.dq_tolerance[row + d] += 4 * u * std::abs(e.dq[row + d]);
      }
      for (int64_t i = 0; i < static_cast<int64_t>(scores.size()); ++i) {
        const int64_t key = s.kv_at(first + i, h);
        const double p = std::exp(scores[i] - lse);
        const double score_error =
            4 * u * (std::abs(scores[i]) + (root_dim + 1) * s.scale * sum_of_magnitudes(&q[row], &k[key], dim));
        const double p_error = p * (score_error + 4 * u * (1 + std::abs(lse))) + 0x1p-126;  // subnormal p may be 0
        const double dp = dot(&d_out[row], &v[key], dim);
        const double dp_error = 4 * u * root_dim * sum_of_magnitudes(&d_out[row], &v[key], dim);
        const double ds = p * (dp - delta);
        const double ds_error = p_error * std::abs(dp - delta) + p * (dp_error + delta_error) + 4 * u * std::abs(ds);
        lse_tolerance += p * score_error;
        for (int64_t d = 0; d < dim; ++d) {
          e.out_tolerance[row + d] += p_error * (std::abs(v[key + d]) + std::abs(e.out[row + d])) +
                                      4 * u * root_keys * p * std::abs(v[key + d]);
          e.dq_tolerance[row + d] += s.scale * std::abs(k[key + d]) * (ds_error + 4 * u * root_keys * std::abs(ds));
          e.dk_tolerance[key + d] += s.scale * std::abs(q[row + d]) * (ds_error + 4 * u * root_rows * std::abs(ds));
          e.dv_tolerance[key + d] += std::abs(d_out[row + d]) * (p_error + 4 * u * root_rows * p);
        }
      }
    }
  }
  for (size_t i = 0; i < e.dk.size(); ++i) {
    e.dk_tolerance[i] += 4 * u * std::abs(e.dk[i]);
    e.dv_tolerance[i] += 4 * u * std::abs(e.dv[i]);
  }
  return e;
}

/// [N, heads, head_dim] inside rows of `row_stride` floats of a guarded buffer.
class Part {
 public:
  Part(Guarded<float>& buffer, int64_t offset, int64_t row_stride, int64_t tokens, int64_t heads, int64_t head_dim)
      : view_(buffer.get() + offset, {tokens, heads, head_dim}, {row_stride, head_dim, 1}) {}
  void assign(const std::vector<float>& dense) {
    int64_t at = 0;
    for_each([&](float& x) { x = dense[at++]; });
  }
  std::vector<float> values() const {
    std::vector<float> dense;
    for_each([&](float& x) { dense.push_back(x); });
    return dense;
  }
  const View<float, 3>& view() const { return view_; }

 private:
  template <class Body>
  void for_each(Body body) const {
    for (int64_t n = 0; n < view_.extent(0); ++n) {
      for (int64_t h = 0; h < view_.extent(1); ++h) {
        for (int64_t d = 0; d < view_.extent(2); ++d) body(view_(n, h, d));
      }
    }
  }
  View<float, 3> view_;
};

/// q, k, v (or their gradients) side by side in rows with a gap, off the 64-byte grid: as training lays them out, and
/// worse.
struct Packed {
  static constexpr int64_t kGap = 3;
  int64_t row_stride;
  Guarded<float> buffer;
  Part q, k, v;
  explicit Packed(const AttentionShape& s)
      : row_stride((s.heads + 2 * s.kv_heads) * s.head_dim + kGap),
        buffer(s.tokens() * row_stride, 1),
        q(buffer, 0, row_stride, s.tokens(), s.heads, s.head_dim),
        k(buffer, s.heads * s.head_dim, row_stride, s.tokens(), s.kv_heads, s.head_dim),
        v(buffer, (s.heads + s.kv_heads) * s.head_dim, row_stride, s.tokens(), s.kv_heads, s.head_dim) {}
  void expect_gaps_untouched() {
    EXPECT_TRUE(buffer.intact());
    const std::vector<float> all = buffer.values();
    for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i) {
      if (i % row_stride < row_stride - kGap) continue;
      ASSERT_TRUE(std::isnan(all[i])) << "the gap of row " << i / row_stride;
    }
  }
};

View<const int32_t, 1> sequences(const AttentionShape& s) {
  return {s.cu_seqlens.data(), {static_cast<int64_t>(s.cu_seqlens.size())}};
}

struct Results {
  std::vector<float> out, lse, dq, dk, dv;
  bool operator==(const Results&) const = default;
};

void run_forward(Context& context, const AttentionShape& s, const Inputs& in, Results& results) {
  Packed qkv(s);
  qkv.q.assign(in.q);
  qkv.k.assign(in.k);
  qkv.v.assign(in.v);
  const int64_t row_stride = s.heads * s.head_dim + 5;
  Guarded<float> out_buffer(s.tokens() * row_stride, 3), lse(s.heads * s.tokens());
  Part out(out_buffer, 0, row_stride, s.tokens(), s.heads, s.head_dim);
  attention(context, qkv.q.view(), {.keys = qkv.k.view(), .values = qkv.v.view()}, sequences(s),
            static_cast<float>(s.scale), s.window, out.view(), {lse.get(), {s.heads, s.tokens()}});
  results.out = out.values();
  results.lse = lse.values();
  EXPECT_TRUE(out_buffer.intact());
  EXPECT_TRUE(lse.intact());
  qkv.expect_gaps_untouched();
}

/// The backward pass from the exact out and lse, rounded.
void run_backward(Context& context, const AttentionShape& s, const Inputs& in, const std::vector<float>& out_values,
                  const std::vector<float>& lse, Results& results) {
  Packed qkv(s), gradients(s);
  qkv.q.assign(in.q);
  qkv.k.assign(in.k);
  qkv.v.assign(in.v);
  const View<const float, 3> out(out_values.data(), {s.tokens(), s.heads, s.head_dim});
  const View<const float, 3> d_out(in.d_out.data(), {s.tokens(), s.heads, s.head_dim});
  Guarded<float> delta(s.heads * s.tokens());
  attention_backward(context, d_out, qkv.q.view(), qkv.k.view(), qkv.v.view(), out, {lse.data(), {s.heads, s.tokens()}},
                     sequences(s), static_cast<float>(s.scale), s.window, gradients.q.view(), gradients.k.view(),
                     gradients.v.view(), {delta.get(), {s.heads, s.tokens()}});
  results.dq = gradients.q.values();
  results.dk = gradients.k.values();
  results.dv = gradients.v.values();
  EXPECT_TRUE(delta.intact());
  gradients.expect_gaps_untouched();
}

Results run(Context& context, const AttentionShape& s, const Inputs& in) {
  Results results;
  run_forward(context, s, in, results);
  run_backward(context, s, in, results.out, results.lse, results);
  return results;
}

std::vector<float> rounded(const std::vector<double>& x) {
  return {x.begin(), x.end()};
}

void compare(const AttentionShape& s, const Spread& spread = {}) {
  SCOPED_TRACE(describe(s));
  const Inputs in = make_inputs(s, spread);
  const Expected e = expect(s, in);
  const auto within = [](const std::vector<double>& tolerance) { return [&](int64_t i) { return tolerance[i]; }; };
  for (Isa isa : isas()) {
    SCOPED_TRACE(isa_name(isa));
    Results one;
    for (int threads : {1, 2, 3}) {
      Context context(threads, isa);
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
  for (Isa isa : isas()) {
    Context context(2, isa);
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

TEST(Attention, OutputMayTakeThePlaceOfTheQueries) {
  const AttentionShape s = make_shape({100, 33}, 4, 2, 20);
  const Inputs in = make_inputs(s);
  for (Isa isa : isas()) {
    Context context(2, isa);
    Results apart;
    run_forward(context, s, in, apart);
    Packed qkv(s);
    qkv.q.assign(in.q);
    qkv.k.assign(in.k);
    qkv.v.assign(in.v);
    attention(context, qkv.q.view(), {.keys = qkv.k.view(), .values = qkv.v.view()}, sequences(s),
              static_cast<float>(s.scale), s.window, qkv.q.view(), {});
    EXPECT_EQ(qkv.q.values(), apart.out) << isa_name(isa);
    EXPECT_EQ(qkv.k.values(), in.k) << isa_name(isa);
    EXPECT_EQ(qkv.v.values(), in.v) << isa_name(isa);
    qkv.expect_gaps_untouched();
  }
}

// What a row depends on.

std::vector<float> rows(const std::vector<float>& x, int64_t width, int64_t begin, int64_t end) {
  return {x.begin() + begin * width, x.begin() + end * width};
}

TEST(Attention, NeighboursInTheBatchChangeNoBits) {
  for (int64_t window : {0, 50}) {
    const AttentionShape batch = make_shape({37, 150, 3}, 4, 2, 12, window),
                         alone = make_shape({150}, 4, 2, 12, window);
    const Inputs in = make_inputs(batch);
    const int64_t q = 4 * 12, k = 2 * 12;
    const Inputs part{rows(in.q, q, 37, 187), rows(in.k, k, 37, 187), rows(in.v, k, 37, 187),
                      rows(in.d_out, q, 37, 187)};
    for (Isa isa : isas()) {
      Context context(1, isa);
      const Results whole = run(context, batch, in), single = run(context, alone, part);
      EXPECT_EQ(rows(whole.out, q, 37, 187), single.out) << isa_name(isa);
      EXPECT_EQ(rows(whole.dq, q, 37, 187), single.dq) << isa_name(isa);
      EXPECT_EQ(rows(whole.dk, k, 37, 187), single.dk) << isa_name(isa);
      EXPECT_EQ(rows(whole.dv, k, 37, 187), single.dv) << isa_name(isa);
    }
  }
}

TEST(Attention, LaterTokensAreExcluded) {
  const AttentionShape s = make_shape({140}, 2, 1, 8);
  const Inputs in = make_inputs(s);
  Inputs wild = in;
  const int64_t from = 61;
  std::fill(wild.q.begin() + from * 16, wild.q.end(), 1e30F);
  std::fill(wild.k.begin() + from * 8, wild.k.end(), -1e30F);
  std::fill(wild.v.begin() + from * 8, wild.v.end(), 1e30F);
  for (Isa isa : isas()) {
    Context context(1, isa);
    Results a, b;
    run_forward(context, s, in, a);
    run_forward(context, s, wild, b);
    EXPECT_EQ(rows(a.out, 16, 0, from), rows(b.out, 16, 0, from)) << isa_name(isa);
  }
}

TEST(Attention, NotANumberSpreadsToTheRowsThatSeeIt) {
  const AttentionShape s = make_shape({40, 40}, 2, 1, 8);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (auto which : {&Inputs::q, &Inputs::k}) {
    Inputs in = make_inputs(s);
    (in.*which)[13 * (in.*which).size() / 80 + 3] = kNan;  // token 13
    for (Isa isa : isas()) {
      Context context(1, isa);
      const Results r = run(context, s, in);
      for (int64_t n = 0; n < 80; ++n) {
        const bool sees = which == &Inputs::q ? n == 13 : n >= 13 && n < 40;
        EXPECT_EQ(std::isnan(r.out[s.q_at(n, 0)]), sees) << isa_name(isa) << ", token " << n;
        EXPECT_EQ(std::isnan(r.lse[n]), sees) << isa_name(isa) << ", token " << n;
        EXPECT_EQ(std::isnan(r.dq[s.q_at(n, 0)]), sees) << isa_name(isa) << ", token " << n;
      }
    }
  }
}

// Keys and values through pages.

struct Pages {
  int64_t size, per_sequence;
  std::vector<int32_t> table, lengths;
  std::vector<float> keys, values;
  int64_t rows;
  /// Spreads the keys of `s` over pages in a random order; unused rows hold NaN, unused table entries a wild number.
  Pages(const AttentionShape& s, const Inputs& in, int64_t page_size) : size(page_size), per_sequence(1) {
    const int64_t count = static_cast<int64_t>(s.cu_seqlens.size()) - 1, width = s.kv_heads * s.head_dim;
    int64_t pages = 0;
    for (int64_t i = 0; i < count; ++i) {
      lengths.push_back(s.cu_seqlens[i + 1] - s.cu_seqlens[i]);
      const int64_t wanted = (lengths[i] + size - 1) / size;
      per_sequence = std::max(per_sequence, wanted);
      pages += wanted;
    }
    std::vector<int32_t> order(pages);
    std::iota(order.begin(), order.end(), 0);
    Random random(kSeed);
    for (int64_t i = pages - 1; i > 0; --i) std::swap(order[i], order[random.integer(0, i)]);
    rows = pages * size;
    keys.assign(rows * width, std::numeric_limits<float>::quiet_NaN());
    values = keys;
    table.assign(count * per_sequence, -7);
    int64_t next = 0;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t t = 0; t < lengths[i]; ++t) {
        int32_t& page = table[i * per_sequence + t / size];
        if (t % size == 0) page = order[next++];
        const int64_t from = (s.cu_seqlens[i] + t) * width, to = (page * size + t % size) * width;
        std::copy_n(in.k.begin() + from, width, keys.begin() + to);
        std::copy_n(in.v.begin() + from, width, values.begin() + to);
      }
    }
  }
  KeysValues view(const AttentionShape& s) const {
    const int64_t count = static_cast<int64_t>(lengths.size());
    return {.keys = {keys.data(), {rows, s.kv_heads, s.head_dim}},
            .values = {values.data(), {rows, s.kv_heads, s.head_dim}},
            .page_table = {table.data(), {count, per_sequence}},
            .kv_lengths = {lengths.data(), {count}},
            .page_size = size};
  }
};

/// The last tokens[i] queries of each sequence, through pages, give the bits that the whole sequences give.
void compare_pages(const AttentionShape& s, const std::vector<int32_t>& last, int64_t page_size) {
  SCOPED_TRACE(describe(s) + ", pages of " + std::to_string(page_size));
  const Inputs in = make_inputs(s);
  const Pages pages(s, in, page_size);
  const int64_t width = s.heads * s.head_dim;
  std::vector<int32_t> cu_seqlens{0};
  std::vector<float> q;
  for (size_t i = 0; i < last.size(); ++i) {
    cu_seqlens.push_back(cu_seqlens.back() + last[i]);
    q.insert(q.end(), in.q.begin() + (s.cu_seqlens[i + 1] - last[i]) * width,
             in.q.begin() + s.cu_seqlens[i + 1] * width);
  }
  const int64_t tokens = cu_seqlens.back();
  for (Isa isa : isas()) {
    Context context(2, isa);
    Results whole;
    run_forward(context, s, in, whole);
    Guarded<float> out(tokens * width), lse(s.heads * tokens);
    attention(context, {q.data(), {tokens, s.heads, s.head_dim}}, pages.view(s),
              {cu_seqlens.data(), {static_cast<int64_t>(cu_seqlens.size())}}, static_cast<float>(s.scale), s.window,
              {out.get(), {tokens, s.heads, s.head_dim}}, {lse.get(), {s.heads, tokens}});
    EXPECT_TRUE(out.intact() && lse.intact());
    for (size_t i = 0; i < last.size(); ++i) {
      const int64_t end = s.cu_seqlens[i + 1];
      EXPECT_EQ(rows(out.values(), width, cu_seqlens[i], cu_seqlens[i + 1]), rows(whole.out, width, end - last[i], end))
          << isa_name(isa) << ", sequence " << i;
    }
  }
}

TEST(Attention, PagesGiveTheBitsOfFlatKeys) {
  for (int64_t page_size : {1, 16, 100, 1000}) {
    compare_pages(make_shape({150, 1, 40}, 4, 2, 8), {150, 1, 40}, page_size);
    compare_pages(make_shape({150, 1, 40}, 4, 2, 8), {1, 1, 1}, page_size);
    compare_pages(make_shape({150, 90, 40}, 4, 1, 12), {30, 0, 7}, page_size);
    compare_pages(make_shape({150, 90, 40}, 2, 2, 12, 20), {30, 2, 7}, page_size);
  }
}

// What is refused.

template <class Call>
void expect_refused(Call call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::shape);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  std::vector<float> x(10000);
  Context context(1);
  const auto tensor = [&](int64_t n, int64_t h, int64_t d) { return View<float, 3>(x.data(), {n, h, d}); };
  std::vector<int32_t> cu{0, 2, 5}, table{0, 1, 2, 3}, lengths{2, 4};
  const auto flat = [&](View<const float, 3> q, View<const float, 3> k, View<const float, 3> v, View<float, 3> out,
                        View<float, 2> lse = {}) {
    attention(context, q, {.keys = k, .values = v}, {cu.data(), {3}}, 1, 0, out, lse);
  };
  const auto t = tensor(5, 4, 8), kv = tensor(5, 2, 8);
  flat(t, kv, kv, t);
  expect_refused([&] { flat(t, tensor(5, 3, 8), tensor(5, 3, 8), t); }, "multiple");
  expect_refused([&] { flat(tensor(5, 4, 0), tensor(5, 2, 0), tensor(5, 2, 0), tensor(5, 4, 0)); }, "head_dim");
  expect_refused([&] { flat(t, tensor(6, 2, 8), kv, t); }, "keys");
  expect_refused([&] { flat(t, kv, tensor(5, 2, 7), t); }, "values");
  expect_refused([&] { flat(t, kv, kv, tensor(5, 2, 8)); }, "out");
  expect_refused([&] { flat(t, kv, kv, t, {x.data(), {5, 4}}); }, "lse");
  expect_refused([&] { flat({x.data(), {5, 4, 8}, {32, 1, 4}}, kv, kv, t); }, "q [");
  for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{0, 2, 4}, {1, 2, 5}, {0, 6, 5}}) {
    cu = wrong;
    expect_refused([&] { flat(t, kv, kv, t); }, "cu_seqlens");
  }
  cu = {0, 2, 5};

  const auto paged = [&](int64_t rows) {
    attention(context, t, {tensor(rows, 2, 8), tensor(rows, 2, 8), {table.data(), {2, 2}}, {lengths.data(), {2}}, 2},
              {cu.data(), {3}}, 1, 0, t, {});
  };
  paged(8);
  expect_refused([&] { paged(7); }, "outside");
  lengths = {2, 2};
  expect_refused([&] { paged(8); }, "more queries");
  lengths = {2, 5};
  expect_refused([&] { paged(8); }, "more keys");
  lengths = {2, 4};
  table[3] = -1;
  expect_refused([&] { paged(8); }, "outside");

  const auto backward = [&](View<const float, 3> d_out, View<float, 3> dk, View<float, 2> delta) {
    attention_backward(context, d_out, t, kv, kv, t, {x.data(), {4, 5}}, {cu.data(), {3}}, 1, 0, t, dk, kv, delta);
  };
  expect_refused([&] { backward(tensor(4, 4, 8), kv, {x.data(), {4, 5}}); }, "d_out");
  expect_refused([&] { backward(t, tensor(5, 1, 8), {x.data(), {4, 5}}); }, "dk");
  expect_refused([&] { backward(t, kv, {x.data(), {4, 4}}); }, "delta");
}

TEST(Attention, NoTokensAreNoWork) {
  const AttentionShape s = make_shape({0, 0}, 2, 1, 8);
  Context context(2);
  run(context, s, make_inputs(s));
}

TEST(Attention, MemoryIsThatOfTheThreads) {
  EXPECT_EQ(attention_memory(Context(3), 64), 3 * attention_memory(Context(1), 64));
  EXPECT_LT(attention_memory(Context(1), 128), 800 << 10);
}

}  // namespace
}  // namespace keel
