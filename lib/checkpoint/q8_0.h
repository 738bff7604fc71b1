#pragma once

#include <cstdint>
#include <span>

#include "keel/base/export.h"

namespace keel {

/// A row of weights in blocks of 32, the last one perhaps shorter, rounded as ggml's reference does (formats.md 4):
///   d = max |x| / 127 in fp32,   values = x (1 / d) to the nearest integer, halves away from zero,   scale = d as fp16
/// values: one a weight; scales: one a block. Blocks with an infinity or a NaN, which are not defined there, become NaN.
KEEL_API void quantise_q8_0(std::span<const float> row, std::span<int8_t> values, std::span<uint16_t> scales);

}  // namespace keel
