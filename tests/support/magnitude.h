#pragma once

#include <cmath>

namespace keel::testing {

/// A scalar for reference templates that turns a formula into the sum of the absolute values of its terms: differences
/// add. If every result of the formula is rounded with relative error u, along at most k roundings and sums of n terms,
/// the whole is off by about (k + sqrt(n)) u times that sum, however much cancels.
class Magnitude {
 public:
  Magnitude() = default;
  Magnitude(double value) : value_(std::abs(value)) {}  // NOLINT: as constants mix with scalars in the templates
  double value() const { return value_; }

  friend Magnitude operator+(Magnitude a, Magnitude b) { return a.value_ + b.value_; }
  friend Magnitude operator-(Magnitude a, Magnitude b) { return a.value_ + b.value_; }
  friend Magnitude operator*(Magnitude a, Magnitude b) { return a.value_ * b.value_; }
  friend Magnitude operator/(Magnitude a, Magnitude b) { return a.value_ / b.value_; }
  Magnitude& operator+=(Magnitude b) { return *this = *this + b; }

 private:
  double value_ = 0;
};

}  // namespace keel::testing
