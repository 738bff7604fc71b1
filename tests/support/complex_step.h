#pragma once

#include <complex>
#include <vector>

#include "support/numeric.h"

namespace keel::testing {

/// Gradient at x of a loss written for std::vector<std::complex<double>>, by one complex step for each element.
template <class Loss>
std::vector<double> complex_step_gradient(const std::vector<double>& x, Loss loss) {
  std::vector<std::complex<double>> at(x.begin(), x.end());
  std::vector<double> gradient;
  for (auto& element : at) {
    element.imag(kComplexStep);
    gradient.push_back(std::imag(loss(at)) / kComplexStep);
    element.imag(0);
  }
  return gradient;
}

/// A backward pass in double against complex steps: within 1e-12 of the largest element.
inline void expect_same_gradient(const std::vector<double>& actual, const std::vector<double>& expected,
                                 const std::string& what) {
  double largest = 0;
  for (double e : expected) largest = std::max(largest, std::abs(e));
  ASSERT_GT(largest, 0) << what;
  expect_close(
      actual, expected, [&](int64_t) { return 1e-12 * largest; }, what);
}

}  // namespace keel::testing
