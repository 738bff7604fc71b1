#pragma once

#include <bit>
#include <cstdint>

namespace keel {

/// A bfloat16 by its bits: the upper half of an fp32, 8 significant bits.
struct Bf16 {
  uint16_t bits;
};

/// The same number.
constexpr float widened(Bf16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}

}  // namespace keel
