#include "keel/eval/statistics.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace keel {
namespace {

TEST(Statistics, MeanAndItsStandardError) {
  const std::array<double, 4> values = {1, 0, 1, 1};
  EXPECT_EQ(mean_of(values), 0.75);
  EXPECT_EQ(mean_standard_error(values), 0.25);
  EXPECT_EQ(mean_standard_error(std::array<double, 1>{1}), std::nullopt);
  EXPECT_TRUE(std::isnan(mean_of({})));
}

TEST(Statistics, PerplexityBootstrapIsTheHarnesss) {
  const std::array<double, 3> values = {-1, -2, -3};
  EXPECT_EQ(perplexity_of(values), std::exp(2.0));
  for (int threads : {1, 3}) {
    EXPECT_DOUBLE_EQ(perplexity_bootstrap(values, 1000, threads).value(), 3.8995878971948685);
    EXPECT_DOUBLE_EQ(perplexity_bootstrap(values, 3000, threads).value(), 3.9548451584299804);
  }
  EXPECT_EQ(perplexity_bootstrap(values, 0, 1), std::nullopt);
  EXPECT_EQ(perplexity_bootstrap(std::array<double, 1>{-1}, 1000, 1), std::nullopt);
}

TEST(Statistics, GroupsAreWeightedByRows) {
  const std::array<GroupMember, 2> members = {GroupMember{0.5, 0.1, 10}, GroupMember{0.25, 0.2, 30}};
  EXPECT_DOUBLE_EQ(pooled_mean(members), 0.3125);
  EXPECT_DOUBLE_EQ(pooled_standard_error(members).value(), 0.15325417483795722);
  const std::array<GroupMember, 2> without = {GroupMember{0.5, 0.1, 10}, GroupMember{0.25, std::nullopt, 1}};
  EXPECT_EQ(pooled_standard_error(without), std::nullopt);
}

}  // namespace
}  // namespace keel
