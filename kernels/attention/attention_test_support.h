#pragma once

// What the tests of attention share: inputs, expected results with their tolerances, guarded runs.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "keel/kernels/attention/attention.h"
#include "keel/kernels/attention/attention_ref.h"
#include "support/numeric.h"
#include "support/test_device.h"

namespace keel::attention_testing {

using reference::AttentionShape;
using testing::Guarded;
using testing::isas_to_test;
using testing::kUnitFp32;
using testing::Random;

inline constexpr uint64_t kSeed = 20240607;

inline AttentionShape make_shape(const std::vector<int32_t>& lengths, int64_t heads, int64_t kv_heads, int64_t head_dim,
                                 int64_t window = 0) {
  std::vector<int32_t> cu_seqlens{0};
  for (int32_t n : lengths) cu_seqlens.push_back(cu_seqlens.back() + n);
  return {cu_seqlens, heads, kv_heads, head_dim, 1 / std::sqrt(static_cast<double>(head_dim)), window};
}

inline std::string describe(const AttentionShape& s) {
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

inline Inputs make_inputs(const AttentionShape& s, const Spread& spread = {}) {
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

inline double sum_of_magnitudes(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::abs(a[i] * b[i]);
  return sum;
}

inline double dot(const double* a, const double* b, int64_t n) {
  return std::inner_product(a, a + n, b, 0.0);
}

/// Tolerances follow the errors through the formulas: 4 (u |y| + sqrt(n) u sum |a b|) for every sum of n products, a
/// relative error of p = exp(x) from the error of x, and the errors of factors times the other factors.
inline Expected expect(const AttentionShape& s, const Inputs& in) {
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

inline View<const int32_t, 1> sequences(const AttentionShape& s) {
  return {s.cu_seqlens.data(), {static_cast<int64_t>(s.cu_seqlens.size())}};
}

struct Results {
  std::vector<float> out, lse, dq, dk, dv;
  bool operator==(const Results&) const = default;
};

inline void run_forward(Context& context, const AttentionShape& s, const Inputs& in, Results& results) {
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
inline void run_backward(Context& context, const AttentionShape& s, const Inputs& in,
                         const std::vector<float>& out_values, const std::vector<float>& lse, Results& results) {
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

inline Results run(Context& context, const AttentionShape& s, const Inputs& in) {
  Results results;
  run_forward(context, s, in, results);
  run_backward(context, s, in, results.out, results.lse, results);
  return results;
}

}  // namespace keel::attention_testing
