#pragma once

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"
#include "keel/kernels/rope/rope.h"

namespace keel {

KEEL_DECLARE_ISA(void rope_table(const double* frequencies, View<float, 2> cos, View<float, 2> sin, Threads threads))
KEEL_DECLARE_ISA(void rope(const int32_t* positions, View<const float, 2> cos, View<const float, 2> sin,
                           View<float, 3> x, RopeDirection direction, Threads threads))

}  // namespace keel
