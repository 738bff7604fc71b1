#include "keel/tokenizer/utf8_repair.h"

#include <gtest/gtest.h>

#include <string>

namespace keel {
namespace {

// The WHATWG "utf-8 decoder" as the standard states it, on code units, for comparison.
std::string whatwg_decode(const std::string& bytes, int64_t& replaced, int64_t& first) {
  std::string out, sequence;
  int needed = 0;
  unsigned lower = 0x80, upper = 0xBF;
  replaced = 0;
  first = -1;
  const auto replace = [&](size_t at) {
    out += "\xEF\xBF\xBD";
    ++replaced;
    if (first < 0) first = static_cast<int64_t>(at);
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    const unsigned byte = static_cast<unsigned char>(bytes[i]);
    if (needed == 0) {
      sequence.clear();
      lower = 0x80;
      upper = 0xBF;
      if (byte <= 0x7F) {
        out.push_back(bytes[i]);
      } else if (byte >= 0xC2 && byte <= 0xDF) {
        needed = 1;
      } else if (byte >= 0xE0 && byte <= 0xEF) {
        if (byte == 0xE0) lower = 0xA0;
        if (byte == 0xED) upper = 0x9F;
        needed = 2;
      } else if (byte >= 0xF0 && byte <= 0xF4) {
        if (byte == 0xF0) lower = 0x90;
        if (byte == 0xF4) upper = 0x8F;
        needed = 3;
      } else {
        replace(i);
      }
      if (needed > 0) sequence.push_back(bytes[i]);
      continue;
    }
    if (byte < lower || byte > upper) {
      replace(i - sequence.size());
      needed = 0;
      --i;  // the byte is looked at again
      continue;
    }
    lower = 0x80;
    upper = 0xBF;
    sequence.push_back(bytes[i]);
    if (--needed == 0) out += sequence;
  }
  if (needed > 0) replace(bytes.size() - sequence.size());
  return out;
}

void compare_with_whatwg(const std::string& bytes) {
  int64_t replaced = 0, first = 0;
  const std::string wanted = whatwg_decode(bytes, replaced, first);
  std::string text = "x";
  ASSERT_EQ(append_replacing_invalid_utf8(bytes, text), replaced);
  ASSERT_EQ(text, "x" + wanted);
  ASSERT_EQ(find_invalid_utf8(bytes), first);
}

TEST(Utf8Repair, EverySequenceOfTheBytesThatMatter) {
  const std::string units =
      "\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5\xFF";
  for (char a : units) {
    compare_with_whatwg({a});
    for (char b : units) {
      compare_with_whatwg({a, b});
      for (char c : units) {
        compare_with_whatwg({a, b, c});
        for (char d : units) compare_with_whatwg({a, b, c, d});
      }
    }
  }
}

TEST(Utf8Repair, ReplacesMaximalSubparts) {
  std::string text;
  EXPECT_EQ(append_replacing_invalid_utf8("a\xF0\x9F\x9A"
                                          "b\xED\xA0\x80\xE2\x82",
                                          text),
            5);
  EXPECT_EQ(text,
            "a\uFFFD"
            "b\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8Repair, FindsTheFirstBadByteBehindLongGoodText) {
  std::string text(1000, 'a');
  text += "\u00e4\U0001F680";
  EXPECT_EQ(find_invalid_utf8(text), -1);
  EXPECT_EQ(find_invalid_utf8(text + "\xC3"), static_cast<int64_t>(text.size()));
  EXPECT_EQ(find_invalid_utf8(""), -1);
}

TEST(Utf8Repair, KnowsWhatMoreBytesCouldComplete) {
  EXPECT_EQ(incomplete_utf8_tail(""), 0);
  EXPECT_EQ(incomplete_utf8_tail("abc"), 0);
  EXPECT_EQ(incomplete_utf8_tail("\u00e4"), 0);
  EXPECT_EQ(incomplete_utf8_tail("ab\xC3"), 1);
  EXPECT_EQ(incomplete_utf8_tail("\xE2\x82"), 2);
  EXPECT_EQ(incomplete_utf8_tail("\xF0\x9F\x9A"), 3);
  EXPECT_EQ(incomplete_utf8_tail("\xF0\x9F\x9A\x80"), 0);
  EXPECT_EQ(incomplete_utf8_tail("\xED\xA0"), 0);  // a surrogate never completes
  EXPECT_EQ(incomplete_utf8_tail("\x82\x82"), 0);
  EXPECT_EQ(incomplete_utf8_tail("\xFF"), 0);
}

}  // namespace
}  // namespace keel
