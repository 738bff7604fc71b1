#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace keel::reference {

template <class S>
struct LayerNorm {
  std::vector<S> y, r, mean;
};

/// x: [rows, d] dense, w and bias: [d].
template <class S>
LayerNorm<S> layer_norm(const std::vector<S>& x, const std::vector<S>& w, const std::vector<S>& bias, double eps) {
  using std::sqrt;
  const int64_t d = static_cast<int64_t>(w.size()), rows = static_cast<int64_t>(x.size()) / d;
  const S width(static_cast<double>(d));
  LayerNorm<S> result{std::vector<S>(x.size()), std::vector<S>(rows), std::vector<S>(rows)};
  for (int64_t r = 0; r < rows; ++r) {
    const S* row = &x[r * d];
    S sum = 0, squares = 0;
    for (int64_t c = 0; c < d; ++c) sum += row[c];
    const S mean = sum / width;
    for (int64_t c = 0; c < d; ++c) squares += (row[c] - mean) * (row[c] - mean);
    result.mean[r] = mean;
    result.r[r] = S(1) / sqrt(squares / width + S(eps));
    for (int64_t c = 0; c < d; ++c) result.y[r * d + c] = w[c] * (row[c] - mean) * result.r[r] + bias[c];
  }
  return result;
}

template <class S>
struct LayerNormGradients {
  std::vector<S> dx, dw, dbias;
};

template <class S>
LayerNormGradients<S> layer_norm_backward(const std::vector<S>& dy, const std::vector<S>& x, const std::vector<S>& w,
                                          const std::vector<S>& r, const std::vector<S>& mean) {
  const int64_t d = static_cast<int64_t>(w.size()), rows = static_cast<int64_t>(r.size());
  const S width(static_cast<double>(d));
  LayerNormGradients<S> result{std::vector<S>(x.size()), std::vector<S>(d), std::vector<S>(d)};
  for (int64_t n = 0; n < rows; ++n) {
    S p_sum = 0, px_sum = 0;  // of p = w dy, and of p xh
    for (int64_t c = 0; c < d; ++c) {
      const S p = w[c] * dy[n * d + c];
      p_sum += p;
      px_sum += p * (r[n] * (x[n * d + c] - mean[n]));
    }
    for (int64_t c = 0; c < d; ++c) {
      const S xh = r[n] * (x[n * d + c] - mean[n]);
      result.dx[n * d + c] = r[n] * (w[c] * dy[n * d + c] - p_sum / width - xh * (px_sum / width));
      result.dw[c] += dy[n * d + c] * xh;
      result.dbias[c] += dy[n * d + c];
    }
  }
  return result;
}

}  // namespace keel::reference
