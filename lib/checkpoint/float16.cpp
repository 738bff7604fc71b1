#include "keel/checkpoint/float16.h"

#include <bit>

namespace keel {

float widen_bf16(uint16_t value) {
  const uint32_t word = uint32_t{value} << 16;
  return std::bit_cast<float>(word);
}

float widen_f16(uint16_t value) {
  const uint32_t sign = uint32_t{value & 0x8000U} << 16;
  const uint32_t exponent = (value >> 10) & 0x1FU;
  const uint32_t fraction = value & 0x3FFU;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide_exponent = exponent == 31 ? 255 : exponent + 112;
  const uint32_t word = sign | (wide_exponent << 23) | (fraction << 13);
  return std::bit_cast<float>(word);
}

uint16_t narrow_bf16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  if ((word & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((word >> 16) | 0x40U);  // quiet NaN
  return static_cast<uint16_t>((word + 0x7FFFU + ((word >> 16) & 1U)) >> 16);
}

uint16_t narrow_f16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 16) & 0x8000U, magnitude = word & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65520 and more
  if (magnitude < 0x38800000U) {  // below 2^-14: a whole number of 2^-24, which this addition rounds to
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;  // whose last bit is 2^-24
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

}  // namespace keel
