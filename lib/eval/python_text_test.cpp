#include "keel/eval/python_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

TEST(PythonText, StripsUnicodeWhiteSpace) {
  EXPECT_EQ(python_strip("\xE3\x80\x80 a b\n\x1C"), "a b");
  EXPECT_EQ(python_lstrip(" \xC2\x85x "), "x ");
  EXPECT_EQ(python_rstrip(" x\xE2\x80\xA8"), " x");
  EXPECT_EQ(python_strip("\xE2\x80\x8B"), "\xE2\x80\x8B");  // a zero-width space is none
  EXPECT_EQ(python_strip(" \t"), "");
  EXPECT_EQ(python_rstrip("x\x85"), "x\x85");  // not UTF-8
}

TEST(PythonText, CountsCharacters) {
  EXPECT_EQ(count_characters("h\xC3\xA9llo \xE4\xB8\x96\xF0\x9F\x98\x80"), 8);
}

TEST(PythonText, SplitsWords) {
  EXPECT_EQ(count_words(""), 1);
  EXPECT_EQ(count_words("one"), 1);
  EXPECT_EQ(count_words(" = A = \n He said \" hi \" ( x , y ) 's 1 @,@ 000 ; \n"), 20);
  EXPECT_EQ(count_words("a\x1C\x1F"
                        "b"),
            2);
  EXPECT_EQ(count_words("a\xC2\xA0"
                        "b\xE2\x80\xA8"
                        "c\xE3\x80\x80"),
            4);
  EXPECT_EQ(count_words("a\xE2\x80\x8B"
                        "b\xEF\xBB\xBF"
                        "c"),
            1)
      << "zero-width characters are no spaces";
  EXPECT_EQ(count_words("\xFF \xC3"), 2);
}

// Expected values: str.lower and str.capitalize of Python 3.11.
TEST(PythonText, ChangesCase) {
  EXPECT_EQ(python_capitalize("the Man WALKS"), "The man walks");
  EXPECT_EQ(python_capitalize(""), "");
  EXPECT_EQ(python_capitalize("éÀ"), "Éà");
  EXPECT_EQ(python_capitalize("ßtraße"), "Sstraße");
  EXPECT_EQ(python_capitalize("ǆX"), "ǅx");
  EXPECT_EQ(python_capitalize("ﬁX Y"), "Fix y");
  EXPECT_EQ(python_lower("İI"), "i̇i");
  EXPECT_EQ(python_lower("ΣΊΣΥΦΟΣ"), "σίσυφος");
  EXPECT_EQ(python_lower("ΑΣ. ΑΣ.Α ΑΣ'"), "ας. ασ.α ας'");
  EXPECT_EQ(python_lower("ΆΣ̈ Σ"), "άς̈ σ");
  EXPECT_EQ(python_capitalize("Σ\xFFΣ"), "Σ\xFFσ");
}

TEST(PythonText, WritesFloatsAsRepr) {
  const std::pair<double, const char*> cases[] = {
      {0.1, "0.1"},
      {1e16, "1e+16"},
      {1e15, "1000000000000000.0"},
      {123456789012345680.0, "1.2345678901234568e+17"},
      {1e-4, "0.0001"},
      {1e-5, "1e-05"},
      {-0.0, "-0.0"},
      {3.0, "3.0"},
      {1.5e300, "1.5e+300"},
      {5e-324, "5e-324"},
      {0.00012345, "0.00012345"},
      {-150.1095428466797, "-150.1095428466797"},
  };
  for (const auto& [value, text] : cases) EXPECT_EQ(python_repr(value), text);
  EXPECT_EQ(python_repr(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(python_repr(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(PythonText, WritesStringsAsRepr) {
  EXPECT_EQ(python_repr("a"), "'a'");
  EXPECT_EQ(python_repr("it's"), "\"it's\"");
  EXPECT_EQ(python_repr("it's \"it\""), "'it\\'s \"it\"'");
  EXPECT_EQ(python_repr("a\\b\n\x01\xC2\xA0é\xE2\x80\x8B"), "'a\\\\b\\n\\x01\\xa0é\\u200b'");
}

TEST(PythonText, WritesJsonAsPython) {
  const Json value = Json::parse(R"({"a": [1, 2.0, true, null], "b": {}, "c": [], "d": "é\"\n\u0001/\u007f"})");
  EXPECT_EQ(python_json(value), "{\"a\": [1, 2.0, true, null], \"b\": {}, \"c\": [], \"d\": \"é\\\"\\n\\u0001/\x7F\"}");
  EXPECT_EQ(python_json(Json::parse(R"({"a": [1, {"b": 2}], "c": {}})"), 2),
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ],\n  \"c\": {}\n}");
}

}  // namespace
}  // namespace keel
