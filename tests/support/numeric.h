#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace keel::testing {

/// Unit roundoff of fp32.
inline constexpr double kUnitFp32 = 0x1p-24;
/// Step of the complex-step derivative: d/dx f = Im f(x + i h) / h, exact to rounding since no difference is taken.
inline constexpr double kComplexStep = 1e-30;

/// Tolerance of a sum of n products computed in fp32, from sum_abs = sum |a_i b_i| and the exact result y:
/// factor (u |y| + sqrt(n) u sum_abs). Add what else a formula amplifies by hand, never by trial.
inline double sum_tolerance(double y, int64_t n, double sum_abs, double factor = 4) {
  return factor * (kUnitFp32 * std::abs(y) + std::sqrt(static_cast<double>(n)) * kUnitFp32 * sum_abs);
}

/// |actual - expected| <= tolerance, false for NaN in any of the three and for a negative tolerance.
inline bool is_close(double actual, double expected, double tolerance) {
  return std::abs(actual - expected) <= tolerance;
}

/// Fails with the first element, and the count, that is not close. tolerance(i) is that of element i.
template <class Actual, class Expected, class Tolerance>
void expect_close(const Actual& actual, const Expected& expected, Tolerance tolerance, const std::string& what) {
  ASSERT_EQ(std::size(actual), std::size(expected)) << what;
  int64_t wrong = 0;
  int64_t first = -1;
  for (int64_t i = 0; i < static_cast<int64_t>(std::size(actual)); ++i) {
    if (is_close(static_cast<double>(actual[i]), static_cast<double>(expected[i]), tolerance(i))) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong > 0) {
    ADD_FAILURE() << what << ": " << wrong << " of " << std::size(actual) << " elements are off, first at " << first
                  << ": " << static_cast<double>(actual[first]) << ", expected " << static_cast<double>(expected[first])
                  << " +- " << tolerance(first);
  }
}

/// Reproducible inputs: splitmix64 from a seed that each test fixes and prints on failure (SCOPED_TRACE).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  int64_t integer(int64_t low, int64_t high) {  // both included
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  double normal() {
    const double r = std::sqrt(-2 * std::log(1 - uniform()));
    return r * std::cos(6.283185307179586 * uniform());
  }
  /// Rounded to fp32, so that the reference in double starts from the same values.
  std::vector<float> normals(int64_t n, double mean = 0, double std_dev = 1) {
    std::vector<float> v(n);
    for (float& x : v) x = static_cast<float>(mean + std_dev * normal());
    return v;
  }

 private:
  uint64_t state_;
};

/// An output buffer between guard values, filled with NaN: writes outside it, and elements never written, show.
/// `misalign` floats shift its start off the 64-byte grid.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t n, int64_t misalign = 0)
      : size_(n), start_(kGuard + misalign), data_(n + 2 * kGuard + misalign) {
    std::memset(data_.data(), 0x5A, data_.size() * sizeof(T));
    for (int64_t i = 0; i < n; ++i)
      get()[i] = std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN() : T{};
  }
  T* get() { return data_.data() + start_; }
  int64_t size() const { return size_; }
  std::vector<T> values() const { return {data_.begin() + start_, data_.begin() + start_ + size_}; }
  void assign(const std::vector<T>& v) { std::copy(v.begin(), v.end(), get()); }
  ::testing::AssertionResult intact() const {
    std::vector<unsigned char> guard(sizeof(T), 0x5A);
    for (int64_t i = 0; i < static_cast<int64_t>(data_.size()); ++i) {
      if (i >= start_ && i < start_ + size_) continue;
      if (std::memcmp(&data_[i], guard.data(), sizeof(T)) != 0) {
        return ::testing::AssertionFailure() << "element " << i - start_ << " outside [0, " << size_ << ") was written";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr int64_t kGuard = 64;
  int64_t size_, start_;
  std::vector<T> data_;
};

template <class T>
std::vector<T> widen(const std::vector<float>& v) {
  return {v.begin(), v.end()};
}

}  // namespace keel::testing
