#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/train/settings.h"

namespace keel {

/// Which steps (1 .. steps) of a run have a line in metrics.jsonl or profile.jsonl and which are followed by a validation
/// or by samples, where train.log_every, train.profile_every, validate.every_steps and validate.sample.every_steps may
/// have changed on the way (--override).
class KEEL_API LogSchedule {
 public:
  /// `overrides` as in run.json, in the order in which they were made: one from step N holds for steps N+1 and later,
  /// its `before` up to step N. Error(format) for entries that are none.
  explicit LogSchedule(const TrainSettings& settings);
  LogSchedule(const TrainSettings& settings, const Json& overrides);

  /// The first, the last, and every train.log_every-th.
  bool logs(int64_t step) const;
  /// Likewise every train.profile_every-th, while there is such a period.
  bool profiles(int64_t step) const;
  /// Every validate.every_steps-th, and the last.
  bool validates(int64_t step) const;
  /// Every validate.sample.every_steps-th, and the last; of a run that has prompts.
  bool samples(int64_t step) const;

 private:
  struct Period {
    int64_t until = 0;  ///< last step
    int64_t every = 0;  ///< 0: none
  };
  /// Of a key that decides one of them; null for others.
  std::vector<Period>* periods_of(const std::string& key);
  /// That which holds at `step`; 0: none.
  static int64_t period_at(const std::vector<Period>& periods, int64_t step);
  static bool falls_on(const std::vector<Period>& periods, int64_t step);

  int64_t steps_;
  std::vector<Period> log_, profile_, validate_, sample_;  // ascending; the last has no end
};

}  // namespace keel
