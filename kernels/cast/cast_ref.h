#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace keel::reference {

/// The number of 8 significant bits (no fewer than those of 2^-133) nearest to x, of two the even one.
inline double round_to_bf16(double x) {
  if (!std::isfinite(x) || x == 0) return x;
  const int exponent = std::max(std::ilogb(x), -126);
  const double last_place = std::ldexp(1.0, exponent - 7);
  const double rounded = std::nearbyint(x / last_place) * last_place;  // nearbyint takes halves to the even number
  const double largest = std::ldexp(255.0, 120);
  return std::abs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), x) : rounded;
}

inline double value_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

}  // namespace keel::reference
