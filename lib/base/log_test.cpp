#include "keel/base/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/child.h"
#include "support/errors.h"

namespace keel::log {
namespace {

/// Collects what the sink gets and takes it away at the end.
class Log : public ::testing::Test {
 protected:
  void SetUp() override { clear_warnings(); }
  void TearDown() override {
    set_sink({});
    clear_warnings();
  }

  void collect(Level level) {
    set_sink([this](Level, std::string_view text) { lines_.emplace_back(text); }, level);
  }

  std::vector<std::string> lines_;
};

TEST_F(Log, WithoutASinkNothingHappens) {
  info("nobody");
  error("hears {}", "this");
  EXPECT_EQ(level(), Level::off);
}

TEST_F(Log, ShowsFromTheLevelOn) {
  collect(Level::warning);
  debug("a");
  info("b");
  warn("c {}", 1);
  error("d");
  EXPECT_EQ(lines_, (std::vector<std::string>{"c 1", "d"}));
}

TEST_F(Log, RemembersWarningsOnceWhateverTheLevel) {
  collect(Level::error);
  for (int i = 0; i < 3; ++i) warn("same");
  warn("other");
  EXPECT_EQ(warnings(), (std::vector<std::string>{"same", "other"}));
  for (int i = 0; i < 500; ++i) warn("number {}", i);
  EXPECT_EQ(warnings().size(), 100U);
  clear_warnings();
  EXPECT_TRUE(warnings().empty());
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Log, CallsFromThreadsDoNotOverlap) {
  collect(Level::info);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) info("line");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines_.size(), 400U);
}

TEST_F(Log, StderrHasNoColourWithoutATerminal) {
  const auto result = testing::run_in_child([] {
    set_stderr_sink("keel-x", Level::debug);
    debug("a");
    info("two\nlines\x1b[31m");
    return 0;
  });
  EXPECT_EQ(result.err, "keel-x: debug: a\nkeel-x: two\\nlines\\x1b[31m\n");
  EXPECT_EQ(result.out, "");
}

TEST_F(Log, ParsesLevels) {
  EXPECT_EQ(parse_level("debug"), Level::debug);
  EXPECT_EQ(parse_level("off"), Level::off);
  KEEL_EXPECT_ERROR(parse_level("warn"), ErrorKind::usage, "unknown log level 'warn': did you mean 'warning'?");
}

}  // namespace
}  // namespace keel::log
