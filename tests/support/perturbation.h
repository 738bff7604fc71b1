#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/numeric.h"

// How far off a computation in bf16 may be: what the same computation in double is off by, in root mean square, when all
// that would be rounded is moved at random instead (Monte Carlo arithmetic, Parker 1997). A number is moved by up to the
// most that rounding does, evenly: the root mean square of that is 2^-8.8 of the number, that of rounding some 2^-9.3. So
// what rounding does lies within few of these deviations, and any error in a formula far outside.
namespace keel::testing {

inline constexpr int kPerturbedRuns = 8;
inline constexpr double kDeviations = 4;

/// Moves numbers as rounding to bf16 may.
class Perturbation {
 public:
  explicit Perturbation(uint64_t seed) : random_(seed) {}
  void operator()(std::vector<double>& numbers) {
    constexpr double kMost = 0x1p-8;
    for (double& x : numbers) x *= 1 + kMost * (2 * random_.uniform() - 1);
  }

 private:
  Random random_;
};

/// |x - y|_2
inline double distance(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

/// The root mean square of deviations, one after the other.
class Deviation {
 public:
  void add(double deviation) {
    squares_ += deviation * deviation;
    ++count_;
  }
  double tolerance() const { return kDeviations * std::sqrt(squares_ / count_); }

 private:
  double squares_ = 0;
  int count_ = 0;
};

}  // namespace keel::testing
