#pragma once

#include <array>
#include <cmath>
#include <vector>

namespace keel::reference {

/// {sum x^2, sum x y, sum y^2}
template <class S>
std::array<S, 3> moments(const std::vector<S>& x, const std::vector<S>& y) {
  std::array<S, 3> sums{};
  for (size_t i = 0; i < x.size(); ++i) {
    sums[0] += x[i] * x[i];
    sums[1] += x[i] * y[i];
    sums[2] += y[i] * y[i];
  }
  return sums;
}

template <class S>
S log_sum(const std::vector<S>& r) {
  S sum = 0;
  for (const S& v : r) sum += std::log(std::abs(v));
  return sum;
}

}  // namespace keel::reference
