#pragma once

#include <cstdint>

namespace keel {

/// A bfloat16 by its bits: the upper half of an fp32, 8 significant bits.
struct Bf16 {
  uint16_t bits;
};

}  // namespace keel
