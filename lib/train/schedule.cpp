#include "keel/train/schedule.h"

#include <cmath>
#include <numbers>

namespace keel {

double learning_rate(const Schedule& s, double peak, double last, int64_t t) {
  if (t < s.warmup_steps) return peak * static_cast<double>(t + 1) / static_cast<double>(s.warmup_steps);
  switch (s.name) {
    case ScheduleName::constant:
      return peak;
    case ScheduleName::cosine: {
      if (t + 1 >= s.steps) return last;
      const double x = static_cast<double>(t + 1 - s.warmup_steps) / static_cast<double>(s.steps - s.warmup_steps);
      return last + (peak - last) * (1 + std::cos(std::numbers::pi * x)) / 2;
    }
  }
  return peak;
}

}  // namespace keel
