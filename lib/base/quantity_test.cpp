#include "keel/base/quantity.h"

#include <gtest/gtest.h>

#include <limits>

#include "keel/base/utf8.h"

namespace keel {
namespace {

TEST(ParseInteger, TakesTheWholeText) {
  EXPECT_EQ(parse_integer("0"), 0);
  EXPECT_EQ(parse_integer("-12"), -12);
  EXPECT_EQ(parse_integer("+5"), 5);
  EXPECT_EQ(parse_integer("1e9"), 1'000'000'000);
  EXPECT_EQ(parse_integer("2.5e3"), 2500);
  EXPECT_EQ(parse_integer("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const char* bad : {"", " 1", "1 ", "1x", "--1", "+-1", "++1", "1.5", "0x10", "1e30", "nan", "inf", "1,000"}) {
    EXPECT_EQ(parse_integer(bad), std::nullopt) << bad;
  }
}

TEST(ParseReal, TakesFiniteNumbers) {
  EXPECT_EQ(parse_real("1e-3"), 0.001);
  EXPECT_EQ(parse_real(".5"), 0.5);
  EXPECT_EQ(parse_real("-2"), -2.0);
  for (const char* bad : {"", "1e", "nan", "inf", "-inf", "1e999", "0.1.2", "1,5", "0.1f"}) {
    EXPECT_EQ(parse_real(bad), std::nullopt) << bad;
  }
}

TEST(ParseSize, KnowsUnits) {
  EXPECT_EQ(parse_size("4096"), 4096);
  EXPECT_EQ(parse_size("1G"), 1'000'000'000);
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_size("512MiB"), int64_t{512} << 20);
  EXPECT_EQ(parse_size("2ki"), 2048);
  EXPECT_EQ(parse_size("1.5k"), 1500);
  EXPECT_EQ(parse_size("10b"), 10);
  EXPECT_EQ(parse_size("1e6"), 1'000'000);
  EXPECT_EQ(parse_size("9007199254740993"), 9007199254740993) << "exact beyond 2^53";
  for (const char* bad : {"", "G", "-1", "1X", "1GiBB", "1Gib5", "1.0001k", "1 G", "10000P", "i", "1i", "1Gx"}) {
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  }
}

TEST(ParseAmount, TakesBForBillion) {
  EXPECT_EQ(parse_amount("4096"), 4096);
  EXPECT_EQ(parse_amount("100B"), 100'000'000'000);
  EXPECT_EQ(parse_amount("1.5b"), 1'500'000'000);
  EXPECT_EQ(parse_amount("1T"), 1'000'000'000'000);
  EXPECT_EQ(parse_amount("2Mi"), 2 << 20);
  EXPECT_EQ(parse_amount("9007199254740993"), 9007199254740993) << "exact beyond 2^53";
  for (const char* bad : {"", "B", "-1", "5GB", "512MiB", "1BB", "1Bi", "1.5", "1e10B"}) {
    EXPECT_EQ(parse_amount(bad), std::nullopt) << bad;
  }
}

TEST(ParseDuration, KnowsUnitsAndClocks) {
  EXPECT_EQ(parse_duration("90"), 90.0);
  EXPECT_EQ(parse_duration("1.5"), 1.5);
  EXPECT_EQ(parse_duration("30s"), 30.0);
  EXPECT_EQ(parse_duration("20m"), 1200.0);
  EXPECT_EQ(parse_duration("1h30m"), 5400.0);
  EXPECT_EQ(parse_duration("1d2h3m4s"), 93784.0);
  EXPECT_EQ(parse_duration("0.5h"), 1800.0);
  EXPECT_EQ(parse_duration("10:30"), 630.0);
  EXPECT_EQ(parse_duration("36:00:00"), 129600.0);
  EXPECT_EQ(parse_duration("2-12:00:01"), 216001.0);
  for (const char* bad :
       {"", "-1", "h", "1m1h", "1h1h", "1x", "1:60", "1:2:3:4", "1-2:03", ":30", "1:", "1h 2m", "-1h"}) {
    EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
  }
}

TEST(Format, IsForPeople) {
  EXPECT_EQ(format_bytes(512), "512 bytes");
  EXPECT_EQ(format_bytes(1'500'000'000), "1.50 GB");
  EXPECT_EQ(format_bytes(999'999), "1.00 MB");
  EXPECT_EQ(format_bytes(-2000), "-2.00 kB");
  const auto apart = [](int64_t a, int64_t b) {
    const auto [left, right] = format_bytes_apart(a, b);
    return left + ", " + right;
  };
  EXPECT_EQ(apart(3'000'000'000, 4'000'000'000), "3.00 GB, 4.00 GB");
  EXPECT_EQ(apart(3'004'900'000, 2'995'100'000), "3.005 GB, 2.995 GB");
  EXPECT_EQ(apart(3'000'000'001, 3'000'000'000), "3.000000001 GB, 3.000000000 GB");
  EXPECT_EQ(apart(12'345'678, 12'345'678), "12.3 MB, 12.3 MB");
  EXPECT_EQ(apart(999'999, 1'000'000), "0.999999 MB, 1.000000 MB");
  const int64_t most = std::numeric_limits<int64_t>::max();  // more digits than a double has
  EXPECT_EQ(apart(most, most - 1), "9223372036854775807 bytes, 9223372036854775806 bytes");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(12'345), "12.3k");
  EXPECT_EQ(format_count(1'500'000), "1.50M");
  EXPECT_EQ(format_count(0.25), "0.25");
  EXPECT_EQ(format_duration(0.82), "0.8 s");
  EXPECT_EQ(format_duration(45), "45 s");
  EXPECT_EQ(format_duration(725), "12:05");
  EXPECT_EQ(format_duration(11'045), "3:04:05");
  EXPECT_EQ(format_duration(2 * 86400 + 11'045), "2d 03:04:05");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_real(0.1), "0.1");
  EXPECT_EQ(format_real(3), "3");
  EXPECT_EQ(format_real(1e-5), "1e-05");
}

TEST(Utf8, LengthsAndRefusals) {
  EXPECT_EQ(utf8_length("a"), 1U);
  EXPECT_EQ(utf8_length("\xC3\xA9"), 2U);
  EXPECT_EQ(utf8_length("\xE2\x82\xAC"), 3U);
  EXPECT_EQ(utf8_length("\xF0\x9F\x9A\x80"), 4U);
  EXPECT_EQ(utf8_length("\xF4\x8F\xBF\xBF"), 4U);
  for (const char* bad :
       {"", "\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xE2\x28\xA1", "\xFF"}) {
    EXPECT_EQ(utf8_length(bad), 0U) << ::testing::PrintToString(bad);
  }
}

TEST(Utf8, AppendsWhatItMeasures) {
  for (const uint32_t code_point : {0x41U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    std::string text;
    append_utf8(text, code_point);
    EXPECT_EQ(utf8_length(text), text.size()) << code_point;
  }
}

TEST(Utf8, ReplacesBadBytes) {
  EXPECT_EQ(replace_invalid_utf8("a\xFF\xC3\xA9\xC3"), "a\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD");
}

}  // namespace
}  // namespace keel
