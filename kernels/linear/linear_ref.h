#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "keel/kernels/common/weight_matrix.h"

// linear.h as plain loops, for any scalar (double, std::complex<double>). X and Y are dense.
namespace keel::reference {

inline double fp16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double value = std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 0) value = std::ldexp(fraction, -24);
  if (exponent == 31) value = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  return (bits & 0x8000) != 0 ? -value : value;
}

inline double bf16(uint16_t bits) {
  const int exponent = (bits >> 7) & 255, fraction = bits & 127;
  double value = std::ldexp(128 + fraction, exponent - 134);
  if (exponent == 0) value = std::ldexp(fraction, -133);
  if (exponent == 255) value = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  return (bits & 0x8000) != 0 ? -value : value;
}

inline double weight(const WeightMatrix& W, int64_t row, int64_t column) {
  const int64_t at = row * W.columns + column;
  if (W.type == WeightType::fp32) return static_cast<const float*>(W.values)[at];
  if (W.type == WeightType::bf16) return bf16(static_cast<const uint16_t*>(W.values)[at]);
  const int64_t blocks = (W.columns + 31) / 32;
  return fp16(W.scales[row * blocks + column / 32]) * static_cast<const int8_t*>(W.values)[at];
}

/// y[n,o] = sum over i of x[n,i] W[o,i] + bias[o]; no bias is one of zeros
template <class S>
std::vector<S> linear(const std::vector<S>& x, int64_t N, const WeightMatrix& W, const std::vector<S>& bias = {}) {
  std::vector<S> y(N * W.rows, S{0});
  for (size_t i = 0; i < y.size() && !bias.empty(); ++i) y[i] = bias[i % W.rows];
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t o = 0; o < W.rows; ++o) {
      for (int64_t i = 0; i < W.columns; ++i) y[n * W.rows + o] += x[n * W.columns + i] * S{weight(W, o, i)};
    }
  }
  return y;
}

/// dx[n,i] = sum over o of dy[n,o] W[o,i]
template <class S>
std::vector<S> linear_backward(const std::vector<S>& dy, int64_t N, const WeightMatrix& W) {
  std::vector<S> dx(N * W.columns, S{0});
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t o = 0; o < W.rows; ++o) {
      for (int64_t i = 0; i < W.columns; ++i) dx[n * W.columns + i] += dy[n * W.rows + o] * S{weight(W, o, i)};
    }
  }
  return dx;
}

}  // namespace keel::reference
