#pragma once

// Output head and cross-entropy as plain loops, for any scalar (double, std::complex<double>): what cross_entropy.h
// says, nothing else. All arrays are dense.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace keel::reference {

struct CrossEntropyShape {
  int64_t N, d, V;
};

/// logits [N, V] = x W^T.
template <class T>
std::vector<T> head_logits(const CrossEntropyShape& s, const std::vector<T>& x, const std::vector<T>& W) {
  std::vector<T> logits(s.N * s.V, T(0));
  for (int64_t n = 0; n < s.N; ++n) {
    for (int64_t v = 0; v < s.V; ++v) {
      for (int64_t c = 0; c < s.d; ++c) logits[n * s.V + v] += x[n * s.d + c] * W[v * s.d + c];
    }
  }
  return logits;
}

/// log sum_v exp(logits[n, v])
template <class T>
T logsumexp(const CrossEntropyShape& s, const std::vector<T>& logits, int64_t n) {
  using std::exp, std::log, std::real;
  double largest = real(logits[n * s.V]);
  for (int64_t v = 1; v < s.V; ++v) largest = std::max(largest, static_cast<double>(real(logits[n * s.V + v])));
  T sum = 0;
  for (int64_t v = 0; v < s.V; ++v) sum += exp(logits[n * s.V + v] - largest);
  return largest + log(sum);
}

/// nll [N], 0 where the weight is; returns sum_n weights[n] nll[n].
template <class T>
T cross_entropy(const CrossEntropyShape& s, const std::vector<T>& x, const std::vector<T>& W,
                const std::vector<int32_t>& targets, const std::vector<double>& weights, std::vector<T>& nll) {
  const std::vector<T> logits = head_logits(s, x, W);
  nll.assign(s.N, T(0));
  T loss = 0;
  for (int64_t n = 0; n < s.N; ++n) {
    if (weights[n] == 0) continue;
    nll[n] = logsumexp(s, logits, n) - logits[n * s.V + targets[n]];
    loss += weights[n] * nll[n];
  }
  return loss;
}

/// weights[n] (softmax(logits[n])[v] - [v = targets[n]])
template <class T>
std::vector<T> logits_gradient(const CrossEntropyShape& s, const std::vector<T>& logits,
                               const std::vector<int32_t>& targets, const std::vector<double>& weights) {
  using std::exp;
  std::vector<T> gradient(s.N * s.V, T(0));
  for (int64_t n = 0; n < s.N; ++n) {
    if (weights[n] == 0) continue;
    const T lse = logsumexp(s, logits, n);
    for (int64_t v = 0; v < s.V; ++v) {
      gradient[n * s.V + v] = weights[n] * (exp(logits[n * s.V + v] - lse) - (v == targets[n] ? 1.0 : 0.0));
    }
  }
  return gradient;
}

/// dx [N, d] is overwritten, dW [V, d] added to.
template <class T>
void cross_entropy_backward(const CrossEntropyShape& s, const std::vector<T>& x, const std::vector<T>& W,
                            const std::vector<int32_t>& targets, const std::vector<double>& weights, std::vector<T>& dx,
                            std::vector<T>& dW) {
  const std::vector<T> g = logits_gradient(s, head_logits(s, x, W), targets, weights);
  dx.assign(s.N * s.d, T(0));
  for (int64_t n = 0; n < s.N; ++n) {
    for (int64_t v = 0; v < s.V; ++v) {
      for (int64_t c = 0; c < s.d; ++c) {
        dx[n * s.d + c] += g[n * s.V + v] * W[v * s.d + c];
        dW[v * s.d + c] += g[n * s.V + v] * x[n * s.d + c];
      }
    }
  }
}

}  // namespace keel::reference
