#pragma once

#include <cstdint>

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

KEEL_DECLARE_ISA(void exp_scale(const float* base, const float* s, int64_t n, float* y, Threads threads))
KEEL_DECLARE_ISA(void exp_scale_backward(const float* dy, const float* y, int64_t n, float* ds, Threads threads))

}  // namespace keel
