#pragma once

#include <cstdint>

#include "keel/kernels/common/isa.h"

namespace keel {

/// a[i] = b[i] + s c[i], i < n.
KEEL_DECLARE_ISA(void triad(const float* b, const float* c, float s, float* a, int64_t n))

/// sum over i < n of a[i], in some order.
KEEL_DECLARE_ISA(float read_floats(const float* a, int64_t n))

/// Independent chains of x = x s + t, `rounds` times each; `sum` takes what comes of them. Returns the FLOPs.
KEEL_DECLARE_ISA(double multiply_adds(int64_t rounds, float s, float t, float& sum))

}  // namespace keel
