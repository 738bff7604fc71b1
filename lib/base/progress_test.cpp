#include "keel/base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "keel/base/json.h"
#include "keel/base/log.h"
#include "support/child.h"
#include "support/errors.h"

namespace keel {
namespace {

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

std::string piped(const std::function<void(Progress&)>& use, ProgressMode mode) {
  const auto result = testing::run_in_child([&] {
    use(*make_progress(mode, "keel-x"));
    return 0;
  });
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "");
  return result.err;
}

/// What a terminal of that width gets from the body.
std::string on_terminal(unsigned short columns, const std::function<void()>& body) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = columns;
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    (void)::setenv("TERM", "xterm", 1);
    (void)::unsetenv("NO_COLOR");
    body();
    ::_exit(0);
  }
  std::string text;
  char block[4096];
  for (ssize_t got = 0; (got = ::read(terminal, block, sizeof block)) > 0;)
    text.append(block, static_cast<size_t>(got));
  (void)::close(terminal);
  EXPECT_EQ(testing::wait_for(child).code, 0);
  return text;
}

void short_job(Progress& progress) {
  progress.start("train", 10, "steps");
  const ProgressField fields[] = {{"loss", 2.5, "{:.3f}"}};
  for (int64_t i = 1; i <= 10; ++i) progress.update(i, fields);
  progress.finish();
  progress.finish();
}

TEST(Progress, PlainIsTwoLinesForAShortJob) {
  for (const ProgressMode mode : {ProgressMode::plain, ProgressMode::automatic}) {
    const std::string text = piped(short_job, mode);
    EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos);
    std::istringstream lines(text);
    std::string first, last, more;
    std::getline(lines, first);
    std::getline(lines, last);
    EXPECT_FALSE(std::getline(lines, more)) << more;
    EXPECT_EQ(first, "keel-x: train 0/10 steps (0%)");
    EXPECT_EQ(last.substr(0, 44), "keel-x: train 10/10 steps (100%)  loss 2.500") << last;
    EXPECT_NE(last.find(" steps/s  in 0.0 s"), std::string::npos) << last;
  }
}

TEST(Progress, UnknownTotalAndContinuedJobs) {
  const std::string text = piped(
      [](Progress& progress) {
        progress.start("read", 0, "documents", 5, false);
        progress.update(8);
        progress.finish();
      },
      ProgressMode::plain);
  EXPECT_EQ(text.substr(0, 50), "keel-x: read 5 documents\nkeel-x: read 8 documents ") << text;
}

TEST(Progress, JsonIsOneObjectALine) {
  const std::string text = piped(
      [](Progress& progress) {
        progress.start("train", 10, "steps");
        const ProgressField fields[] = {{"loss", std::nan("")}};
        progress.update(4, fields);
        progress.finish();
      },
      ProgressMode::json);
  std::istringstream lines(text);
  std::vector<Json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(parse_json(line, "line", ErrorKind::format));
  ASSERT_EQ(objects.size(), 2U);
  EXPECT_EQ(objects[0]["progress"].get<std::string>(), "train");
  EXPECT_EQ(objects[0]["done"].get<int>(), 0);
  EXPECT_FALSE(objects[0]["finished"].get<bool>());
  EXPECT_EQ(objects[1]["done"].get<int>(), 4);
  EXPECT_EQ(objects[1]["total"].get<int>(), 10);
  EXPECT_TRUE(objects[1]["loss"].is_null());
  EXPECT_EQ(objects[1]["loss_non_finite"].get<std::string>(), "nan");
  EXPECT_TRUE(objects[1]["finished"].get<bool>());
}

TEST(Progress, NoneIsSilent) {
  EXPECT_EQ(piped(short_job, ProgressMode::none), "");
  EXPECT_EQ(piped([](Progress&) { short_job(no_progress()); }, ProgressMode::none), "");
  EXPECT_EQ(piped(
                [](Progress& progress) {
                  progress.update(1);
                  progress.finish();
                },
                ProgressMode::plain),
            "")
      << "nothing was started";
}

TEST(Progress, ATerminalGetsABarWithinItsWidth) {
  const std::string text = on_terminal(60, [] {
    const auto progress = make_progress(ProgressMode::automatic, "keel-x");
    progress->start("train", 40, "steps");
    for (int64_t i = 1; i <= 40; ++i) {
      const ProgressField fields[] = {{"a_rather_long_name", 1.0}};
      progress->update(i, fields);
      if (i == 20) log::info("not lost");
      sleep_ms(10);
    }
    progress->finish();
  });
  EXPECT_NE(text.find("\r\x1b[K"), std::string::npos);
  size_t redraws = 0;
  for (size_t begin = text.find("\x1b[K"); begin != std::string::npos; begin = text.find("\x1b[K", begin + 1)) {
    const size_t end = std::min(text.find('\r', begin), text.size());
    EXPECT_LE(end - begin - 3, 60U + 30U * (text.find("in 0.", begin) < end ? 1 : 0))
        << text.substr(begin, end - begin);
    ++redraws;
  }
  EXPECT_GE(redraws, 3U);
  EXPECT_LE(redraws, 9U) << "at most ten a second, and one to clear";
  EXPECT_EQ(text.substr(text.rfind("\x1b[K") + 3, 29), "keel-x: train 40/40 steps  a_") << "the last line stays";
}

/// The bar of a training job on a terminal of that width.
std::string training_bar(unsigned short columns, int64_t done, int64_t total) {
  const std::string text = on_terminal(columns, [&] {
    const auto progress = make_progress(ProgressMode::automatic, "keel-x");
    progress->start("train", total, "steps", done - 1, false);
    sleep_ms(150);
    const ProgressField fields[] = {{"loss", 3.2141, "{:.4f}"},
                                    {"grad_norm", 0.5, "{:.3f}"},
                                    {"lr", 3e-4, "{:.3g}"},
                                    {"tokens/s", 12345, "{:.0f}"},
                                    {"utilisation", 0.45, "{:.2f}"}};
    progress->update(done, fields);
  });
  const size_t end = text.rfind("\r\x1b[K"), begin = text.rfind("\x1b[K", end - 1) + 3;
  return text.substr(begin, end - begin);
}

TEST(Progress, ANarrowTerminalLosesTheLeastImportant) {
  const std::vector<std::pair<unsigned short, std::string>> cases = {
      {30, R"( 45% 450/1000  ETA [0-9:]+)"},
      {40, R"( 45% 450/1000  loss 3\.2141  ETA [0-9:]+)"},
      {60, R"(train \[=*>  *\]  45% 450/1000 steps  loss 3\.2141  ETA [0-9:]+)"},
      {80, R"(train \[=*>  *\]  45% 450/1000 steps  loss 3\.2141  grad_norm 0\.500  ETA [0-9:]+)"},
      {120, R"(train \[=*>  *\]  45% 450/1000 steps  loss 3\.2141  grad_norm 0\.500  lr 0\.0003  tokens/s 12345)"
            R"(  ETA [0-9:]+)"},
      {200, R"(train \[=============> {16}\]  45% 450/1000 steps  loss 3\.2141  grad_norm 0\.500  lr 0\.0003)"
            R"(  tokens/s 12345  utilisation 0\.45  ETA [0-9:]+)"}};
  for (const auto& [columns, pattern] : cases) {
    const std::string bar = training_bar(columns, 450, 1000);
    EXPECT_LT(bar.size(), columns) << bar;
    EXPECT_THAT(bar, ::testing::MatchesRegex(pattern)) << columns;
  }
}

TEST(Progress, MessagesMoveTheBarAside) {
  const std::string text = on_terminal(80, [] {
    log::set_stderr_sink("keel-x", log::Level::info);
    const auto progress = make_progress(ProgressMode::automatic, "keel-x");
    progress->start("train", 10, "steps");
    log::warn("look");
    progress->finish();
  });
  EXPECT_NE(text.find("\r\x1b[Kkeel-x: \x1b[1;33mwarning: \x1b[0mlook\r\ntrain ["), std::string::npos) << text;
}

TEST(Progress, NoColorIsRespected) {
  const std::string text = on_terminal(80, [] {
    (void)::setenv("NO_COLOR", "1", 1);
    log::set_stderr_sink("keel-x", log::Level::info);
    log::warn("look");
  });
  EXPECT_EQ(text, "keel-x: warning: look\r\n");
}

TEST(Progress, ParsesModes) {
  EXPECT_EQ(parse_progress_mode("auto"), ProgressMode::automatic);
  EXPECT_EQ(parse_progress_mode("none"), ProgressMode::none);
  KEEL_EXPECT_ERROR(parse_progress_mode("jsno"), ErrorKind::usage,
                    "unknown progress mode 'jsno': did you mean 'json'?");
}

}  // namespace
}  // namespace keel
