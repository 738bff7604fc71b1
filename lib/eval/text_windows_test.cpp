#include "keel/eval/text_windows.h"

#include <gtest/gtest.h>

#include <numeric>

#include "keel/base/error.h"
#include "support/errors.h"

namespace keel {
namespace {

std::vector<int32_t> count_to(int32_t n) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// "9 0 1>2 3": context and continuation of each window.
std::vector<std::string> shown(int32_t n, const TextWindows& windows) {
  std::vector<std::string> lines;
  const std::vector<int32_t> tokens = count_to(n);
  for (const TextWindow& window : cut_windows(n, windows)) {
    const ScoreRequest request = window_request(tokens, window, windows);
    std::string line;
    for (int32_t id : request.context) line += std::to_string(id) + " ";
    line += ">";
    for (int32_t id : request.continuation) line += " " + std::to_string(id);
    lines.push_back(line);
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(TextWindows, WithBosEveryTokenIsPredicted) {
  EXPECT_EQ(shown(7, {.window = 4, .bos = 99}), (Lines{"99 > 0 1 2", "99 > 3 4 5", "99 > 6"}));
  EXPECT_EQ(shown(2, {.window = 4, .bos = 99}), Lines{"99 > 0 1"});
  EXPECT_EQ(shown(0, {.window = 4, .bos = 99}), Lines{});
}

TEST(TextWindows, WithoutBosTheFirstOfAWindowIsContext) {
  EXPECT_EQ(shown(7, {.window = 3}), (Lines{"0 > 1 2", "3 > 4 5"})) << "6 alone predicts nothing";
  EXPECT_EQ(shown(1, {.window = 3}), Lines{});
}

TEST(TextWindows, OverlappingWindowsCountTheirLastTokens) {
  EXPECT_EQ(shown(8, {.window = 5, .stride = 2, .bos = 99}), (Lines{"99 > 0 1 2 3", "99 2 3 > 4 5", "99 4 5 > 6 7"}));
  EXPECT_EQ(shown(7, {.window = 5, .stride = 2, .bos = 99}), (Lines{"99 > 0 1 2 3", "99 2 3 > 4 5", "99 4 5 > 6"}));
  EXPECT_EQ(shown(6, {.window = 4, .stride = 1}), (Lines{"0 > 1 2 3", "1 2 3 > 4", "2 3 4 > 5"}));
  EXPECT_EQ(shown(7, {.window = 4, .stride = 3, .bos = 99}), shown(7, {.window = 4, .bos = 99}));
}

TEST(TextWindows, SizesThatMakeNoSense) {
  KEEL_EXPECT_ERROR(cut_windows(5, {.window = 1}), ErrorKind::config,
                    "a window of 1 positions predicts nothing (--window)");
  KEEL_EXPECT_ERROR(cut_windows(5, {.window = 4, .stride = 0, .bos = 99}), ErrorKind::config,
                    "a stride of 0 for windows of 3 tokens (--stride)");
  KEEL_EXPECT_ERROR(cut_windows(5, {.window = 4, .stride = 4, .bos = 99}), ErrorKind::config,
                    "a stride of 4 for windows of 3 tokens (--stride)");
}

}  // namespace
}  // namespace keel
