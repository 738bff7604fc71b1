#pragma once

#include <cstdint>
#include <vector>

namespace keel::reference {

/// x: [rows, d] dense, b: [d].
template <class S>
std::vector<S> add_bias(const std::vector<S>& x, const std::vector<S>& b) {
  std::vector<S> y(x);
  for (size_t i = 0; i < y.size(); ++i) y[i] += b[i % b.size()];
  return y;
}

/// db[c] = sum_n dy[n,c]
template <class S>
std::vector<S> add_bias_backward(const std::vector<S>& dy, int64_t d) {
  std::vector<S> db(d);
  for (size_t i = 0; i < dy.size(); ++i) db[i % d] += dy[i];
  return db;
}

}  // namespace keel::reference
