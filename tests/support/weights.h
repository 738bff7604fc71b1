#pragma once

#include <cstring>
#include <vector>

#include "keel/kernels/common/weight_matrix.h"
#include "support/numeric.h"

namespace keel::testing {

inline constexpr WeightType kWeightTypes[] = {WeightType::fp32, WeightType::bf16, WeightType::q8_0};

/// A matrix of random weights of about 1 in any type, `misalign` bytes-of-a-value off the 64-byte grid.
class RandomWeights {
 public:
  RandomWeights(WeightType type, int64_t rows, int64_t columns, uint64_t seed, int64_t misalign = 0) {
    Random random(seed);
    WeightMatrix shape(type, rows, columns, nullptr);
    const int64_t count = rows * columns, bytes = shape.value_bytes();
    values_.resize((count + misalign) * bytes);
    for (int64_t i = 0; i < count; ++i) {
      char* at = values_.data() + (misalign + i) * bytes;
      const auto weight = static_cast<float>(random.normal());
      uint32_t word = 0;
      std::memcpy(&word, &weight, 4);
      const auto half = static_cast<uint16_t>(word >> 16);
      const auto whole = static_cast<int8_t>(random.integer(-128, 127));
      if (type == WeightType::fp32) std::memcpy(at, &weight, 4);
      if (type == WeightType::bf16) std::memcpy(at, &half, 2);
      if (type == WeightType::q8_0) std::memcpy(at, &whole, 1);
    }
    if (type == WeightType::q8_0) {  // around 1/100, of either sign, some subnormal
      for (int64_t i = 0; i < rows * scales_of_row(columns); ++i) {
        const auto sign = static_cast<uint16_t>(random.integer(0, 1) << 15);
        const bool is_small = random.integer(0, 7) == 0;
        const int64_t bits = is_small ? random.integer(0, 0x3FF) : random.integer(0x1C00, 0x25FF);
        scales_.push_back(static_cast<uint16_t>(sign | bits));
      }
    }
    matrix_ = {type, rows, columns, values_.data() + misalign * bytes, scales_.data()};
  }
  RandomWeights(const RandomWeights&) = delete;
  RandomWeights& operator=(const RandomWeights&) = delete;

  const WeightMatrix& matrix() const { return matrix_; }

 private:
  std::vector<char> values_;
  std::vector<uint16_t> scales_;
  WeightMatrix matrix_;
};

}  // namespace keel::testing
