#pragma once

// Attention of one flat batch as plain loops, for any scalar (double, std::complex<double>): what attention.h says,
// nothing else. All arrays are dense; keys and values are flat.

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace keel::reference {

struct AttentionShape {
  std::vector<int32_t> cu_seqlens;
  int64_t heads, kv_heads, head_dim;
  double scale;
  int64_t window = 0;

  int64_t tokens() const { return cu_seqlens.back(); }
  /// First key that query n sees; n is the last.
  int64_t first_key(int64_t n) const {
    int64_t s = 0;
    while (cu_seqlens[s + 1] <= n) ++s;
    const int64_t start = cu_seqlens[s];
    return window > 0 && n - window + 1 > start ? n - window + 1 : start;
  }
  int64_t q_at(int64_t n, int64_t h) const { return (n * heads + h) * head_dim; }
  int64_t kv_at(int64_t n, int64_t h) const { return (n * kv_heads + h / (heads / kv_heads)) * head_dim; }
};

/// scale q[n, h] . k[j] for the keys j that n sees, from first_key(n) on.
template <class T>
std::vector<T> attention_scores(const AttentionShape& shape, const std::vector<T>& q, const std::vector<T>& k,
                                int64_t n, int64_t h) {
  std::vector<T> scores;
  for (int64_t j = shape.first_key(n); j <= n; ++j) {
    T sum = 0;
    for (int64_t d = 0; d < shape.head_dim; ++d) sum += q[shape.q_at(n, h) + d] * k[shape.kv_at(j, h) + d];
    scores.push_back(shape.scale * sum);
  }
  return scores;
}

/// out [N, heads, head_dim], lse [heads, N].
template <class T>
void attention(const AttentionShape& shape, const std::vector<T>& q, const std::vector<T>& k, const std::vector<T>& v,
               std::vector<T>& out, std::vector<T>& lse) {
  using std::exp, std::log, std::real;
  out.assign(q.size(), T(0));
  lse.assign(shape.heads * shape.tokens(), T(0));
  for (int64_t n = 0; n < shape.tokens(); ++n) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const std::vector<T> scores = attention_scores(shape, q, k, n, h);
      double largest = real(scores[0]);
      for (const T& s : scores) largest = std::max(largest, static_cast<double>(real(s)));
      T sum = 0;
      for (const T& s : scores) sum += exp(s - largest);
      for (int64_t i = 0; i < static_cast<int64_t>(scores.size()); ++i) {
        const T p = exp(scores[i] - largest) / sum;
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          out[shape.q_at(n, h) + d] += p * v[shape.kv_at(shape.first_key(n) + i, h) + d];
        }
      }
      lse[h * shape.tokens() + n] = largest + log(sum);
    }
  }
}

/// dq, dk, dv from d_out; P and D are recomputed.
template <class T>
void attention_backward(const AttentionShape& shape, const std::vector<T>& d_out, const std::vector<T>& q,
                        const std::vector<T>& k, const std::vector<T>& v, std::vector<T>& dq, std::vector<T>& dk,
                        std::vector<T>& dv) {
  using std::exp;
  std::vector<T> out, lse;
  attention(shape, q, k, v, out, lse);
  dq.assign(q.size(), T(0));
  dk.assign(k.size(), T(0));
  dv.assign(v.size(), T(0));
  for (int64_t n = 0; n < shape.tokens(); ++n) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const std::vector<T> scores = attention_scores(shape, q, k, n, h);
      const int64_t at = shape.q_at(n, h);
      T delta = 0;
      for (int64_t d = 0; d < shape.head_dim; ++d) delta += d_out[at + d] * out[at + d];
      for (int64_t i = 0; i < static_cast<int64_t>(scores.size()); ++i) {
        const int64_t kv_at = shape.kv_at(shape.first_key(n) + i, h);
        const T p = exp(scores[i] - lse[h * shape.tokens() + n]);
        T dp = 0;
        for (int64_t d = 0; d < shape.head_dim; ++d) dp += d_out[at + d] * v[kv_at + d];
        const T ds = p * (dp - delta);
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          dq[at + d] += shape.scale * ds * k[kv_at + d];
          dk[kv_at + d] += shape.scale * ds * q[at + d];
          dv[kv_at + d] += p * d_out[at + d];
        }
      }
    }
  }
}

}  // namespace keel::reference
