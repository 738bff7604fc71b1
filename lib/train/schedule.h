#pragma once

#include <cstdint>

#include "keel/base/export.h"

namespace keel {

enum class ScheduleName { cosine, constant };

/// The learning rate as a function of the step alone, t = 0 .. steps - 1 (so that a resumed run needs no state):
///   warm-up   peak (t + 1) / warmup_steps                                             for t < warmup_steps
///   cosine    last + (peak - last) (1 + cos(pi (t + 1 - w) / (S - w))) / 2          exactly last at t = S - 1
///   constant  peak
struct Schedule {
  ScheduleName name = ScheduleName::cosine;
  int64_t steps = 0;         ///< S >= 1
  int64_t warmup_steps = 0;  ///< w
};

/// Rate of step t between this peak and this final rate.
KEEL_API double learning_rate(const Schedule& schedule, double peak, double last, int64_t t);

}  // namespace keel
