#pragma once

#include <cstdint>

#include "keel/kernels/common/isa.h"

namespace keel {

/// The largest of n floats, what is not finite aside.
KEEL_DECLARE_ISA(float largest_of(const float* z, int64_t n, bool& all_finite))
KEEL_DECLARE_ISA(int64_t index_of(const float* z, int64_t n, float value))
/// w[i] = exp((z[i] - largest) inverse_temperature), i < n; returns their sum.
KEEL_DECLARE_ISA(float weigh(const float* z, int64_t n, float largest, double inverse_temperature, float* w))

}  // namespace keel
