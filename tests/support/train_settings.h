#pragma once

#include "keel/train/settings.h"

namespace keel::testing {

/// Settings of which only the length and what is logged and validated matter.
inline TrainSettings log_settings(int64_t steps, int64_t log_every, int64_t validate_every) {
  TrainSettings s;
  s.steps = steps;
  s.log_every = log_every;
  s.validate.every_steps = validate_every;
  return s;
}

}  // namespace keel::testing
