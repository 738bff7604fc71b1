#include "keel/train/schedule.h"

#include <gtest/gtest.h>

namespace keel {
namespace {

TEST(Schedule, CosineAgainstNumbersWorkedOutByHand) {
  // Peak 1, final 0.1, two warm-up steps, ten steps: 0.1 + 0.9 (1 + cos(pi k / 8)) / 2 for k = 1 .. 8.
  const Schedule s{.name = ScheduleName::cosine, .steps = 10, .warmup_steps = 2};
  const double expected[] = {0.5,
                             1.0,
                             0.9657457896300791,
                             0.8681980515339464,
                             0.7222075445642904,
                             0.55,
                             0.3777924554357096,
                             0.23180194846605365,
                             0.13425421036992097,
                             0.1};
  for (int t = 0; t < 10; ++t) EXPECT_NEAR(learning_rate(s, 1, 0.1, t), expected[t], 1e-12) << t;
  EXPECT_EQ(learning_rate(s, 1, 0.1, 9), 0.1) << "exactly the final rate at the last step";
}

TEST(Schedule, CosineWithoutWarmupStartsBelowThePeak) {
  const Schedule s{.name = ScheduleName::cosine, .steps = 2, .warmup_steps = 0};
  EXPECT_NEAR(learning_rate(s, 4, 0, 0), 2.0, 1e-15);
  EXPECT_EQ(learning_rate(s, 4, 0, 1), 0.0);
}

TEST(Schedule, ConstantKeepsThePeakWhateverTheLength) {
  const Schedule s{.name = ScheduleName::constant, .steps = 5, .warmup_steps = 4};
  const double expected[] = {0.25, 0.5, 0.75, 1, 1};
  for (int t = 0; t < 5; ++t) EXPECT_EQ(learning_rate(s, 1, 0, t), expected[t]) << t;
}

TEST(Schedule, WarmupAsLongAsTheRunReachesThePeakAtItsEnd) {
  const Schedule s{.name = ScheduleName::cosine, .steps = 4, .warmup_steps = 4};
  EXPECT_EQ(learning_rate(s, 1, 0.1, 3), 1.0);
}

}  // namespace
}  // namespace keel
