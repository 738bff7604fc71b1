#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace keel::reference {

template <class S>
struct RmsNorm {
  std::vector<S> y, s;
};

/// x: [rows, d] dense, w: [d].
template <class S>
RmsNorm<S> rms_norm(const std::vector<S>& x, const std::vector<S>& w, double eps) {
  using std::sqrt;
  const int64_t d = static_cast<int64_t>(w.size()), rows = static_cast<int64_t>(x.size()) / d;
  RmsNorm<S> result{std::vector<S>(x.size()), std::vector<S>(rows)};
  for (int64_t r = 0; r < rows; ++r) {
    S squares = 0;
    for (int64_t c = 0; c < d; ++c) squares += x[r * d + c] * x[r * d + c];
    result.s[r] = S(1) / sqrt(squares / S(static_cast<double>(d)) + S(eps));
    for (int64_t c = 0; c < d; ++c) result.y[r * d + c] = x[r * d + c] * result.s[r] * w[c];
  }
  return result;
}

template <class S>
struct RmsNormGradients {
  std::vector<S> dx, dw;
};

template <class S>
RmsNormGradients<S> rms_norm_backward(const std::vector<S>& dy, const std::vector<S>& x, const std::vector<S>& w,
                                      const std::vector<S>& s) {
  const int64_t d = static_cast<int64_t>(w.size()), rows = static_cast<int64_t>(s.size());
  RmsNormGradients<S> result{std::vector<S>(x.size()), std::vector<S>(d)};
  for (int64_t r = 0; r < rows; ++r) {
    S mean = 0;  // of p xh
    for (int64_t c = 0; c < d; ++c) mean += w[c] * dy[r * d + c] * (s[r] * x[r * d + c]);
    mean = mean / S(static_cast<double>(d));
    for (int64_t c = 0; c < d; ++c) {
      const S xh = s[r] * x[r * d + c];
      result.dx[r * d + c] = s[r] * (w[c] * dy[r * d + c] - xh * mean);
      result.dw[c] += dy[r * d + c] * xh;
    }
  }
  return result;
}

}  // namespace keel::reference
