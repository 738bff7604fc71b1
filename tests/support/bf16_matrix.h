#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "keel/kernels/common/any_view.h"
#include "support/numeric.h"

namespace keel::testing {

/// Half the distance of neighbouring numbers of eight bits, relative to the smaller one.
inline constexpr double kUnitBf16 = 0x1p-8;

/// The nearest bf16, of two equally near ones the even one. Not for NaN.
inline Bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}
inline std::vector<float> rounded(std::vector<float> x) {
  for (float& value : x) value = widened(to_bf16(value));
  return x;
}

/// GuardedMatrix (guarded_matrix.h) of bf16: takes and gives floats.
class Bf16Matrix {
 public:
  Bf16Matrix(int64_t rows, int64_t columns, int64_t pad = 0, int64_t misalign = 0)
      : rows_(rows), columns_(columns), stride_(columns + pad), memory_(rows * stride_, misalign) {}
  Bf16Matrix(int64_t rows, int64_t columns, const std::vector<float>& values, int64_t pad = 0, int64_t misalign = 0)
      : Bf16Matrix(rows, columns, pad, misalign) {
    for (int64_t i = 0; i < rows_ * columns_; ++i) at(i) = to_bf16(values[i]).bits;
  }

  View<Bf16, 2> view() { return {reinterpret_cast<Bf16*>(memory_.get()), {rows_, columns_}, {stride_, 1}}; }
  std::vector<float> values() {
    std::vector<float> v;
    for (int64_t i = 0; i < rows_ * columns_; ++i) v.push_back(widened(Bf16{at(i)}));
    return v;
  }
  /// Nothing but the elements was written.
  ::testing::AssertionResult intact() {
    for (int64_t i = 0; i < rows_ * stride_; ++i) {
      if (i % stride_ >= columns_ && memory_.get()[i] != 0) {
        return ::testing::AssertionFailure() << "padding of row " << i / stride_ << " was written";
      }
    }
    return memory_.intact();
  }

 private:
  uint16_t& at(int64_t i) { return memory_.get()[i / columns_ * stride_ + i % columns_]; }
  int64_t rows_, columns_, stride_;
  Guarded<uint16_t> memory_;
};

}  // namespace keel::testing
