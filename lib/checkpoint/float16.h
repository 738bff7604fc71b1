#pragma once

#include <cstdint>

#include "keel/base/export.h"

namespace keel {

/// The two 16-bit floats of model files, by their bits. Widening is exact.
KEEL_API float widen_f16(uint16_t value);
KEEL_API float widen_bf16(uint16_t value);

/// To the nearest value, of two equally near ones the even one (IEEE 754); beyond the largest: infinity. A NaN stays
/// one and keeps the upper bits of its payload.
KEEL_API uint16_t narrow_f16(float value);
KEEL_API uint16_t narrow_bf16(float value);

}  // namespace keel
