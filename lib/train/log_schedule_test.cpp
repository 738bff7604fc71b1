#include "keel/train/log_schedule.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "support/train_settings.h"

namespace keel {
namespace {

using testing::log_settings;

std::vector<int64_t> logged(const LogSchedule& schedule, int64_t steps) {
  std::vector<int64_t> found;
  for (int64_t step = 1; step <= steps; ++step) {
    if (schedule.logs(step)) found.push_back(step);
  }
  return found;
}

TEST(LogSchedule, FirstLastAndEveryNth) {
  const LogSchedule s(log_settings(10, 4, 0));
  EXPECT_EQ(logged(s, 10), (std::vector<int64_t>{1, 4, 8, 10}));
  EXPECT_TRUE(s.validates(10));
  EXPECT_FALSE(s.validates(4));
}

TEST(LogSchedule, EachStepFollowsTheSettingsOfItsTime) {
  const Json overrides = parse_json(R"([{"from_step": 5, "key": "train.log_every", "before": "2", "after": "3"},
    {"from_step": 9, "key": "optimizer.eps", "before": "1", "after": "2"},
    {"from_step": 9, "key": "train.log_every", "before": "3", "after": "5"},
    {"from_step": 9, "key": "validate.every_steps", "before": "absent", "after": "7"}])",
                                    "run.json", ErrorKind::format);
  const LogSchedule s(log_settings(20, 5, 7), overrides);
  EXPECT_EQ(logged(s, 20), (std::vector<int64_t>{1, 2, 4, 6, 9, 10, 15, 20}));
  EXPECT_FALSE(s.validates(7));
  EXPECT_TRUE(s.validates(14));
}

TEST(LogSchedule, SamplesHaveTheirOwnPeriod) {
  TrainSettings settings = log_settings(20, 5, 7);
  settings.validate.sample.every_steps = 6;
  const Json overrides =
      parse_json(R"([{"from_step": 9, "key": "validate.sample.every_steps", "before": "4", "after": "6"}])", "run.json",
                 ErrorKind::format);
  const LogSchedule s(settings, overrides);
  std::vector<int64_t> found;
  for (int64_t step = 1; step <= 20; ++step) {
    if (s.samples(step)) found.push_back(step);
  }
  EXPECT_EQ(found, (std::vector<int64_t>{4, 8, 12, 18, 20}));
}

TEST(LogSchedule, ProfilesAtBothEndsWhileTheyAreWanted) {
  TrainSettings settings = log_settings(20, 1, 0);
  const auto profiled = [&](const char* overrides) {
    const LogSchedule s(settings, parse_json(overrides, "run.json", ErrorKind::format));
    std::vector<int64_t> found;
    for (int64_t step = 1; step <= 20; ++step) {
      if (s.profiles(step)) found.push_back(step);
    }
    return found;
  };
  EXPECT_EQ(profiled("[]"), (std::vector<int64_t>{}));
  settings.profile_every = 8;
  EXPECT_EQ(profiled("[]"), (std::vector<int64_t>{1, 8, 16, 20}));
  EXPECT_EQ(profiled(R"([{"from_step": 9, "key": "train.profile_every", "before": "absent", "after": "8"}])"),
            (std::vector<int64_t>{16, 20}));
  settings.profile_every = 0;
  EXPECT_EQ(profiled(R"([{"from_step": 9, "key": "train.profile_every", "before": "4", "after": "absent"}])"),
            (std::vector<int64_t>{1, 4, 8}));
}

TEST(LogSchedule, EntriesOfAnotherKindAreRefused) {
  for (const char* text : {R"([{"key": "train.log_every", "before": "1"}])",
                           R"([{"key": "train.log_every", "before": 1, "from_step": 1}])",
                           R"([{"key": "train.log_every", "before": "x", "from_step": 1}])",
                           R"([{"key": "train.log_every", "before": "-1", "from_step": 1}])"}) {
    EXPECT_THROW(LogSchedule(log_settings(20, 5, 7), parse_json(text, "run.json", ErrorKind::format)), Error) << text;
  }
}

}  // namespace
}  // namespace keel
