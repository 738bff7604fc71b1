#include "keel/train/log_schedule.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "keel/base/error.h"

namespace keel {

LogSchedule::LogSchedule(const TrainSettings& settings) : LogSchedule(settings, Json::array()) {}

LogSchedule::LogSchedule(const TrainSettings& settings, const Json& overrides) : steps_(settings.steps) {
  for (const Json& entry : overrides) {
    const Json key = entry.is_object() ? entry.value("key", Json()) : Json();
    if (!key.is_string()) continue;
    std::vector<Period>* const periods = periods_of(key.get<std::string>());
    if (periods == nullptr) continue;
    const Json from = entry.value("from_step", Json()), before = entry.value("before", Json());
    if (!from.is_number_integer() || !before.is_string()) {
      throw Error(ErrorKind::format, "an override of " + key.get<std::string>() + " without from_step and before",
                  "run.json");
    }
    const std::string text = before.get<std::string>();
    const Json every = text == "absent" ? Json(0) : parse_json(text, "run.json", ErrorKind::format);
    if (!every.is_number_integer() || every < 0) {
      throw Error(ErrorKind::format, key.get<std::string>() + " was '" + text + "', no count", "run.json");
    }
    periods->push_back({from.get<int64_t>(), every.get<int64_t>()});
  }
  constexpr int64_t kAlways = std::numeric_limits<int64_t>::max();
  log_.push_back({kAlways, settings.log_every});
  profile_.push_back({kAlways, settings.profile_every});
  validate_.push_back({kAlways, settings.validate.every_steps});
  sample_.push_back({kAlways, settings.validate.sample.every_steps});
}

std::vector<LogSchedule::Period>* LogSchedule::periods_of(const std::string& key) {
  if (key == "train.log_every") return &log_;
  if (key == "train.profile_every") return &profile_;
  if (key == "validate.every_steps") return &validate_;
  if (key == "validate.sample.every_steps") return &sample_;
  return nullptr;
}

int64_t LogSchedule::period_at(const std::vector<Period>& periods, int64_t step) {
  for (const Period& period : periods) {
    if (step <= period.until) return period.every;
  }
  return 0;
}

bool LogSchedule::falls_on(const std::vector<Period>& periods, int64_t step) {
  const int64_t every = period_at(periods, step);
  return every > 0 && step % every == 0;
}

bool LogSchedule::logs(int64_t step) const {
  return step == 1 || step == steps_ || falls_on(log_, step);
}

bool LogSchedule::profiles(int64_t step) const {
  return falls_on(profile_, step) || ((step == 1 || step == steps_) && period_at(profile_, step) > 0);
}

bool LogSchedule::validates(int64_t step) const {
  return step == steps_ || falls_on(validate_, step);
}

bool LogSchedule::samples(int64_t step) const {
  return step == steps_ || falls_on(sample_, step);
}

}  // namespace keel
