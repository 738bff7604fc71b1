#include "keel/base/utf8.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace keel {
namespace {

TEST(OneLine, EscapesWhatSteersATerminal) {
  EXPECT_EQ(one_line("plain äö€𝄞 text\\n"), "plain äö€𝄞 text\\n");
  EXPECT_EQ(one_line("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(one_line(std::string("a\0b\x1b[31m\x7f", 9)), "a\\x00b\\x1b[31m\\x7f");
  EXPECT_EQ(one_line("a\u009bb\u00a0"), "a\\u009bb\u00a0") << "control characters beyond ASCII";
  EXPECT_EQ(one_line("\x9b\xc2"), "\\x9b\\xc2") << "bytes that are not UTF-8";
  EXPECT_EQ(one_line(""), "");
}

TEST(OneLine, TwiceIsOnce) {
  const std::string once = one_line("a\nb\\\x1b");
  EXPECT_EQ(one_line(once), once);
}

TEST(RequireUtf8Path, RefusesOtherNames) {
  require_utf8_path("--out", "run/größe");
  KEEL_EXPECT_ERROR(
      require_utf8_path("--out", "run/gr\xf6\xdf"), ErrorKind::usage,
      "--out is a path that is not UTF-8, which no JSON file can record (run/gr\\xf6\\xdf): rename it, or "
      "reach it by a link with a UTF-8 name");
}

}  // namespace
}  // namespace keel
