#include "keel/checkpoint/q8_0.h"

#include <algorithm>
#include <cmath>

#include "keel/checkpoint/float16.h"

namespace keel {
namespace {

constexpr size_t kBlock = 32;
constexpr uint16_t kNaN = 0x7E00;

/// Half away from zero, for what an int8 holds: roundf, but vector code.
int8_t rounded(float x) {
  const int whole = static_cast<int>(x);
  const float rest = x - static_cast<float>(whole);
  return static_cast<int8_t>(whole + (rest >= 0.5F ? 1 : 0) - (rest <= -0.5F ? 1 : 0));
}

uint16_t quantise_block(const float* x, size_t count, int8_t* values) {
  float largest = 0, sum = 0;  // the sum of x - x is 0 unless one is not finite
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    sum += x[i] - x[i];
  }
  if (std::isnan(sum)) {
    std::fill_n(values, count, int8_t{1});
    return kNaN;
  }
  const float d = largest / 127;
  const float inverse = d > 0 ? 1 / d : 0;
  if (std::isinf(inverse)) {  // d is 0 as fp16
    std::fill_n(values, count, int8_t{0});
    return 0;
  }
  for (size_t i = 0; i < count; ++i) values[i] = rounded(x[i] * inverse);
  return narrow_f16(d);
}

}  // namespace

void quantise_q8_0(std::span<const float> row, std::span<int8_t> values, std::span<uint16_t> scales) {
  for (size_t begin = 0; begin < row.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, row.size() - begin);
    scales[begin / kBlock] = quantise_block(row.data() + begin, count, values.data() + begin);
  }
}

}  // namespace keel
