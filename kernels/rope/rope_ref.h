#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace keel::reference {

/// x: [rows, heads, head_dim] dense; cos, sin: [rows, head_dim / 2], already picked for each row. sign: 1 forward, -1
/// backward.
template <class S>
std::vector<S> rope(const std::vector<S>& x, const std::vector<double>& cos, const std::vector<double>& sin,
                    int64_t heads, int64_t head_dim, double sign) {
  const int64_t pairs = head_dim / 2, rows = static_cast<int64_t>(x.size()) / (heads * head_dim);
  std::vector<S> y(x.size());
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < pairs; ++i) {
        const int64_t first = (n * heads + h) * head_dim + i, second = first + pairs;
        const S c = cos[n * pairs + i], s = sign * sin[n * pairs + i];
        y[first] = x[first] * c - x[second] * s;
        y[second] = x[second] * c + x[first] * s;
      }
    }
  }
  return y;
}

}  // namespace keel::reference
