#include "keel/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "keel/base/clock.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

Json parse(const std::string& text) {
  return parse_json(text, "f.json", ErrorKind::config);
}

TEST(ParseJson, EveryKindOfValue) {
  const Json value =
      parse(" { \"a\" : [1, -2, 2.5, true, false, null, \"x\\n\\u00e9\\ud83d\\ude80\\/\"], \"b\":{},\"c\":[] }\n");
  ASSERT_EQ(value.size(), 3U);
  EXPECT_EQ(value.items().begin().key(), "a") << "the order of keys is kept";
  EXPECT_EQ(value["a"][0].get<int64_t>(), 1);
  EXPECT_EQ(value["a"][1].get<int64_t>(), -2);
  EXPECT_EQ(value["a"][2].get<double>(), 2.5);
  EXPECT_TRUE(value["a"][3].get<bool>());
  EXPECT_FALSE(value["a"][4].get<bool>());
  EXPECT_TRUE(value["a"][5].is_null());
  EXPECT_EQ(value["a"][6].get<std::string>(), "x\n\xC3\xA9\xF0\x9F\x9A\x80/");
  EXPECT_TRUE(value["b"].is_object());
  EXPECT_TRUE(value["c"].is_array());
}

TEST(ParseJson, NumbersKeepTheirValue) {
  EXPECT_EQ(parse("9223372036854775807").get<int64_t>(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse("-9223372036854775808").get<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parse("18446744073709551615").get<uint64_t>(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parse("1000000000000000019884624838656").get<double>(), 1e30) << "tokenizer files hold this one";
  EXPECT_EQ(parse("1e-3").get<double>(), 1e-3);
  EXPECT_EQ(parse("0.1").get<double>(), 0.1);
  EXPECT_EQ(parse("1e-400").get<double>(), 0);
  EXPECT_EQ(parse("0.0000001e-400").get<double>(), 0);
  EXPECT_EQ(parse("5e-324").get<double>(), std::numeric_limits<double>::denorm_min());
  EXPECT_TRUE(std::signbit(parse("-0").get<double>()));
  EXPECT_EQ(parse("0").get<int64_t>(), 0);
}

TEST(ParseJson, SkipsAByteOrderMark) {
  EXPECT_EQ(parse("\xEF\xBB\xBF{\"a\":1}")["a"].get<int>(), 1);
  KEEL_EXPECT_ERROR(parse("\xEF\xBB\xBF{x"), ErrorKind::config,
                    "expected a key in double quotes, found 'x' (f.json:1:2)");
}

struct Refused {
  std::string text;
  std::string line;
};

TEST(ParseJson, SaysWhatIsWrongAndWhere) {
  const std::vector<Refused> cases = {
      {"", "empty JSON text (f.json:1:1)"},
      {"  \n ", "empty JSON text (f.json:2:2)"},
      {"{\n  \"a\": 1,\n  \"b\" 2\n}", "expected ':' after the key, found '2' (f.json:3:7)"},
      {"{\"a\": 1 \"b\": 2}", "expected ',' or '}', found '\"' (f.json:1:9)"},
      {"{\"a\": 1,}", "a comma before the closing bracket (f.json:1:9)"},
      {"[1, 2,\n]", "a comma before the closing bracket (f.json:2:1)"},
      {"{\"a\": 1", "the text ends inside the object of line 1 (f.json:1:8)"},
      {"\n[1,\n2", "the text ends inside the array of line 2 (f.json:3:2)"},
      {"{\"a\": \"xyz", "text without a closing quote (f.json:1:7)"},
      {"{\"a\": \"xyz\n\"}", "text without a closing quote (f.json:1:7)"},
      {"{\"a\": 1, \"a\": 2}", "key 'a' occurs twice (f.json:1:10)"},
      {"{\"a\": 1, \"\\u0061\": 2}", "key 'a' occurs twice (f.json:1:10)"},
      {"{a: 1}", "expected a key in double quotes, found 'a' (f.json:1:2)"},
      {"{'a': 1}", "expected a key in double quotes, found ''' (f.json:1:2)"},
      {"['a']", "text stands in double quotes (f.json:1:2)"},
      {"[1] x", "text after the end of the JSON value (f.json:1:5)"},
      {"{} {}", "text after the end of the JSON value (f.json:1:4)"},
      {"[NaN]", "NaN and Infinity are not JSON (f.json:1:2)"},
      {"[-Infinity]", "NaN and Infinity are not JSON (f.json:1:2)"},
      {"[Infinity]", "NaN and Infinity are not JSON (f.json:1:2)"},
      {"[1e400]", "a number beyond the range of double (f.json:1:2)"},
      {"[-1e400]", "a number beyond the range of double (f.json:1:2)"},
      {"[1e99999999999999999999]", "a number beyond the range of double (f.json:1:2)"},
      {"[01]", "a number with leading zeros (f.json:1:2)"},
      {"[-]", "a number without digits (f.json:1:2)"},
      {"[1.]", "a number without digits after the point (f.json:1:2)"},
      {"[1e+]", "a number without digits in its exponent (f.json:1:2)"},
      {"[.5]", "expected a value, found '.' (f.json:1:2)"},
      {"[+1]", "expected a value, found '+' (f.json:1:2)"},
      {"[tru]", "expected a value, found 't' (f.json:1:2)"},
      {"// x\n1", "comments are not JSON (f.json:1:1)"},
      {"[\"\\x\"]", "unknown escape in a text (f.json:1:3)"},
      {"[\"\\u12g4\"]", "unknown escape in a text (f.json:1:3)"},
      {"[\"\\u12", "unknown escape in a text (f.json:1:3)"},
      {"[\"\\ud83d\"]", "half of a surrogate pair (f.json:1:3)"},
      {"[\"\\ude80\"]", "half of a surrogate pair (f.json:1:3)"},
      {"[\"\\ud83d\\u0041\"]", "half of a surrogate pair (f.json:1:3)"},
      {"[\"a\tb\"]", "a control character inside a text (f.json:1:4)"},
      {"[\"\xFF\"]", "bytes that are not UTF-8 (f.json:1:3)"},
      {"[\"\xED\xA0\x80\"]", "bytes that are not UTF-8 (f.json:1:3)"},
      {"[\"\xC3", "bytes that are not UTF-8 (f.json:1:3)"},
      {"\xFF", "expected a value, found a byte that is not UTF-8 (f.json:1:1)"},
      {std::string("[\0]", 3), "expected a value, found a control character (f.json:1:2)"},
      {"[\"\xC3\xA9\xC3\xA9\", x]", "expected a value, found 'x' (f.json:1:8)"},
  };
  for (const Refused& refused : cases) {
    SCOPED_TRACE(refused.text);
    KEEL_EXPECT_ERROR(parse(refused.text), ErrorKind::config, refused.line);
  }
}

TEST(ParseJson, EveryPrefixOfAConfigIsRefusedWithoutHarm) {
  const std::string text = R"({"a": [1, 2.5e3, {"b\u00e9": "x\\", "c": null}], "d": true, "e": "€"})";
  EXPECT_EQ(parse(text).size(), 3U);
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(testing::error_of([&] { (void)parse(text.substr(0, length)); }).kind(), ErrorKind::config) << length;
  }
}

TEST(ParseJson, DepthIsLimited) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW((void)parse(nested(100)));
  KEEL_EXPECT_ERROR(parse(nested(101)), ErrorKind::config, "arrays and objects nested too deeply (f.json:1:101)");
  KEEL_EXPECT_ERROR(parse(std::string(10'000'000, '[')), ErrorKind::config,
                    "arrays and objects nested too deeply (f.json:1:101)");
  EXPECT_NO_THROW((void)parse_json("[{}]", "f", ErrorKind::format, {.depth = 2}));
  EXPECT_EQ(testing::error_of([&] { (void)parse_json("[{}]", "f", ErrorKind::format, {.depth = 1}); }).kind(),
            ErrorKind::format);
  // Siblings do not add up.
  EXPECT_NO_THROW((void)parse_json("[{},{},[],[]]", "f", ErrorKind::format, {.depth = 2}));
}

TEST(ParseJson, SizeIsLimited) {
  KEEL_EXPECT_ERROR(parse_json("[1,2,3]", "f.json", ErrorKind::format, {.max_bytes = 6}), ErrorKind::format,
                    "JSON of 7 bytes, at most 6 are read (f.json)");
}

TEST(ParseJson, ManyKeysTakeLinearTime) {
  std::string text = "{";
  constexpr int kKeys = 200'000;
  for (int i = 0; i < kKeys; ++i) text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":[]";
  const Stopwatch watch;
  EXPECT_EQ(parse(text + "}").size(), static_cast<size_t>(kKeys));
  EXPECT_LT(watch.seconds(), 20) << "quadratic time would be minutes";
}

TEST(JsonDocument, KnowsWhereEverythingStands) {
  const JsonDocument document("{\n  \"train\": {\n    \"steps\": 10, \"é\": [1, {\"a~b/c\": 2}]\n  }\n}", "f.json",
                              ErrorKind::config);
  EXPECT_EQ(document.where(""), "f.json:1:1");
  EXPECT_EQ(document.where("/train"), "f.json:2:12");
  EXPECT_EQ(document.where_key("/train"), "f.json:2:3");
  EXPECT_EQ(document.where("/train/steps"), "f.json:3:14");
  EXPECT_EQ(document.where("/train/é/0"), "f.json:3:24");
  EXPECT_EQ(document.where("/train/é/1/a~0b~1c"), "f.json:3:37");
  EXPECT_EQ(document.where_key("/train/é/1/" + pointer_part("a~b/c")), "f.json:3:28");
  EXPECT_EQ(document.where("/none"), "f.json");
  EXPECT_EQ(document.where("/train/steps/0"), "f.json");
  EXPECT_EQ(document.where("/train/é/2"), "f.json");
  EXPECT_EQ(document.position_of_value("/none").line, 0);
  EXPECT_STREQ(document.error("/train/steps", "too few", "give more").what(), "too few (f.json:3:14): give more");
}

TEST(JsonDocument, PositionsPassEveryKindOfValue) {
  const JsonDocument document(
      "\xEF\xBB\xBF"
      R"({"a":"}]\"{","b":[[],{}],"c":-1.5e3,"d":{"x":"]"},"e":null,"f":1})",
      "f.json", ErrorKind::config);
  EXPECT_EQ(document.where("/f"), "f.json:1:64");
  EXPECT_EQ(document.where("/b/1"), "f.json:1:22");
}

TEST(ReadJson, ReportsFileProblems) {
  const testing::TempDir dir;
  testing::put_file(dir / "f.json", "{\"a\": }");
  KEEL_EXPECT_ERROR(read_json(dir / "f.json", ErrorKind::format), ErrorKind::format,
                    "expected a value, found '}' (" + (dir / "f.json").string() + ":1:7)");
  EXPECT_EQ(testing::error_of([&] { (void)read_json(dir / "none", ErrorKind::config); }).kind(), ErrorKind::io);
  EXPECT_EQ(testing::error_of([&] { (void)read_json(dir / "f.json", ErrorKind::config, {.max_bytes = 3}); }).kind(),
            ErrorKind::config);
}

TEST(JsonText, IsCompactOrIndented) {
  const Json value = parse(R"({"a":[1,2.0,"x"],"b":{"c":[{"d":1},[]],"e":{}}})");
  EXPECT_EQ(json_text(value), R"({"a":[1,2.0,"x"],"b":{"c":[{"d":1},[]],"e":{}}})");
  EXPECT_EQ(
      json_text(value, 2),
      "{\n  \"a\": [1, 2.0, \"x\"],\n  \"b\": {\n    \"c\": [\n      {\n        \"d\": 1\n      },\n      []\n    ],\n"
      "    \"e\": {}\n  }\n}");
}

TEST(JsonText, DoublesReadBackEqual) {
  for (const double value :
       {0.1, 1e-5, 1e22, 1e23, 123456789.123, 5e-324, 1.7976931348623157e308, 1.0, -0.0, 2.0 / 3}) {
    const std::string text = json_text(Json(value));
    EXPECT_EQ(parse(text).get<double>(), value) << text;
    EXPECT_TRUE(parse(text).is_number_float() || value == 0) << text;
  }
  EXPECT_EQ(json_text(Json(0.1)), "0.1");
  EXPECT_EQ(json_text(Json(1.0)), "1.0");
  EXPECT_EQ(json_text(Json(1e-5)), "1e-05");
}

TEST(JsonText, IsAlwaysValid) {
  const Json value = {{"nan", std::nan("")},
                      {"inf", std::numeric_limits<double>::infinity()},
                      {"text", "q\"\\\n\t\r\x01\x7F\xFF\xC3\xA9"},
                      {"big", std::numeric_limits<uint64_t>::max()}};
  EXPECT_EQ(json_text(value),
            "{\"nan\":null,\"inf\":null,\"text\":\"q\\\"\\\\\\n\\t\\r\\u0001\\u007f\xEF\xBF\xBD\xC3\xA9\","
            "\"big\":18446744073709551615}");
  EXPECT_NO_THROW((void)parse(json_text(value)));
}

TEST(SetNumber, SaysWhyANumberIsMissing) {
  Json object = Json::object();
  set_number(object, "loss", 1.5);
  set_number(object, "a", std::nan(""));
  set_number(object, "b", -std::numeric_limits<double>::infinity());
  EXPECT_EQ(json_text(object), R"({"loss":1.5,"a":null,"a_non_finite":"nan","b":null,"b_non_finite":"-inf"})");
}

}  // namespace
}  // namespace keel
