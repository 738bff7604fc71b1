#include "keel/base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

#include "keel/base/clock.h"

namespace keel {
namespace {

const std::vector<std::string> kSchemes = {"pre", "post", "keel", "keel_v1", "hybrid"};

TEST(Suggestion, NamesTheNearest) {
  EXPECT_EQ(suggestion("kel", kSchemes), "did you mean 'keel'?");
  EXPECT_EQ(suggestion("keel_v2", kSchemes), "did you mean 'keel_v1'?");
  EXPECT_EQ(suggestion("HYBRID", kSchemes), "did you mean 'hybrid'?");
}

TEST(Suggestion, CountsASwapOfNeighboursOnce) {
  const std::vector<std::string> names = {"train.steps"};
  EXPECT_EQ(suggestion("rtain.steps", names), "did you mean 'train.steps'?");
  EXPECT_EQ(suggestion("psot", kSchemes), "did you mean 'post'?");
}

TEST(Suggestion, CompletesABeginning) {
  const std::vector<std::string> levels = {"debug", "warning", "error"};
  EXPECT_EQ(suggestion("warn", levels), "did you mean 'warning'?");
  EXPECT_EQ(suggestion("w", levels), "one of debug, warning, error");
}

TEST(Suggestion, ABeginningOfSeveralIsNoSuggestion) {
  const std::vector<std::string> names = {"checkpoint.every_steps", "checkpoint.every_minutes"};
  EXPECT_EQ(suggestion("checkpoint", names), "one of checkpoint.every_steps, checkpoint.every_minutes");
}

TEST(Suggestion, ListsAFewWhenNoneIsNear) {
  EXPECT_EQ(suggestion("transformer", kSchemes), "one of pre, post, keel, keel_v1, hybrid");
  EXPECT_EQ(suggestion("", kSchemes), "one of pre, post, keel, keel_v1, hybrid");
}

TEST(Suggestion, IsEmptyWhenThereIsNothingToSay) {
  EXPECT_EQ(suggestion("x", {}), "");
  EXPECT_EQ(suggestion("zzzzzz", std::vector<std::string>(21, "abcdefghijk")), "");
}

TEST(Suggestion, AVeryLongNameIsNoWork) {
  const std::vector<std::string> names(200, "train.micro_batch_sequences");
  const Stopwatch watch;
  EXPECT_EQ(suggestion(std::string(size_t{16} << 20, 'x'), names), "");
  EXPECT_LT(watch.seconds(), 5) << "all distances take minutes";
}

TEST(QuotedName, IsCutBetweenCharacters) {
  EXPECT_EQ(quoted_name("train.steps"), "'train.steps'");
  EXPECT_EQ(quoted_name(std::string(60, 'x')), "'" + std::string(60, 'x') + "'");
  EXPECT_EQ(quoted_name(std::string(61, 'x')), "'" + std::string(60, 'x') + "...'");
  EXPECT_EQ(quoted_name(std::string(59, 'x') + "\u20ac"), "'" + std::string(59, 'x') + "...'");
}

TEST(Suggestion, ABeginningBeforeADistantName) {
  EXPECT_EQ(suggestion("--temp", std::vector<std::string>{"--help", "--temperature"}), "did you mean '--temperature'?");
  EXPECT_EQ(suggestion("pres", std::vector<std::string>{"pre", "presentation"}), "did you mean 'pre'?");
  EXPECT_EQ(suggestion("a100", std::vector<std::string>{"a100-40", "a100-80", "h100"}), "one of a100-40, a100-80");
}

}  // namespace
}  // namespace keel
