#include "keel/tokenizer/json_record.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "keel/tokenizer/test_support.h"
#include "support/mutate.h"

namespace keel {
namespace {

std::optional<std::string> text_of(std::string_view record, const std::string& path = "text") {
  JsonRecordScanner scanner({path});
  if (scanner.scan(record).what != nullptr || scanner.fields()[0].kind != JsonKind::string) return std::nullopt;
  std::string text;
  append_json_string(scanner.fields()[0].raw, text);
  return text;
}

JsonFault fault_of(std::string_view record) {
  return JsonRecordScanner({"text"}).scan(record);
}

TEST(JsonRecord, FindsAField) {
  EXPECT_EQ(text_of(R"({"text":"ok"})"), "ok");
  EXPECT_EQ(text_of(R"( { "a" : [1, {"text":"no"}] , "text" : "yes" , "b":{"text":"no"} } )"), "yes");
  EXPECT_EQ(text_of(R"({"a":{"b":{"c":"deep"}}})", "a.b.c"), "deep");
  EXPECT_EQ(text_of(R"({"a":[{"b":"in a list"}]})", "a.b"), std::nullopt);
  EXPECT_EQ(text_of(R"({"a":1})"), std::nullopt);
  EXPECT_EQ(text_of(R"({"t\u0065xt":"escaped key"})"), "escaped key");
}

TEST(JsonRecord, TheLastOfEqualKeysCounts) {
  EXPECT_EQ(text_of(R"({"text":"first","text":"last"})"), "last");
  EXPECT_EQ(text_of(R"({"text":"first","text":null})"), std::nullopt);
  EXPECT_EQ(text_of(R"({"a":{"b":"first"},"a":{"b":"last"}})", "a.b"), "last");
  EXPECT_EQ(text_of(R"({"a":{"b":"first"},"a":{"c":"other"}})", "a.b"), std::nullopt);
  EXPECT_EQ(text_of(R"({"a":{"b":"first"},"a":7})", "a.b"), std::nullopt);
}

TEST(JsonRecord, KnowsTheKindOfEveryValue) {
  JsonRecordScanner scanner({"a", "b", "c", "d", "e", "f", "g"});
  ASSERT_EQ(scanner.scan(R"({"a":null,"b":true,"c":-1.5e3,"d":"x","e":[1,[2]],"f":{"k":{}}})").what, nullptr);
  const JsonKind wanted[] = {JsonKind::null,  JsonKind::boolean, JsonKind::number, JsonKind::string,
                             JsonKind::array, JsonKind::object,  JsonKind::missing};
  for (int i = 0; i < 7; ++i) EXPECT_EQ(scanner.fields()[i].kind, wanted[i]) << i;
  EXPECT_EQ(scanner.fields()[4].raw, "[1,[2]]");
  EXPECT_EQ(scanner.fields()[5].raw, R"({"k":{}})");
  EXPECT_EQ(scanner.fields()[2].raw, "-1.5e3");
}

TEST(JsonRecord, OtherFieldsMayHoldWhatPythonWrites) {
  for (const char* value :
       {"18446744073709551616", "123456789012345678901234567890", "1e400", "NaN", "Infinity", "-Infinity"}) {
    EXPECT_EQ(text_of(std::string(R"({"id":)") + value + R"(,"text":"ok"})"), "ok") << value;
    EXPECT_EQ(text_of(std::string(R"({"text":"ok","id":)") + value + "}"), "ok") << value;
  }
}

TEST(JsonRecord, UnescapesStrings) {
  EXPECT_EQ(text_of(R"({"text":"\"\\\/\b\f\n\r\t\u00e4\u20AC\ud83d\ude80"})"), "\"\\/\b\f\n\r\tä€🚀");
  EXPECT_EQ(text_of(R"({"text":"a\u0000b"})"), std::string("a\0b", 3));
}

TEST(JsonRecord, HalfSurrogatePairsBecomeReplacementCharacters) {
  const auto repaired = [](std::string_view inner, int64_t lone, std::string_view wanted) {
    std::string text;
    EXPECT_EQ(append_json_string("\"" + std::string(inner) + "\"", text), lone) << inner;
    EXPECT_EQ(text, wanted) << inner;
  };
  repaired(R"(\ud83d\ude80)", 0, "🚀");
  repaired(R"(\ud83d)", 1, "\uFFFD");
  repaired(R"(\udc00)", 1, "\uFFFD");
  repaired(R"(\ude80\ud83d)", 2, "\uFFFD\uFFFD");
  repaired(R"(\ud83dx)", 1, "\uFFFDx");
  repaired(R"(\ud83d\u0041)", 1, "\uFFFDA");
  repaired(R"(\ud83d\ud83d\ude80)", 1, "\uFFFD🚀");
  repaired(R"(\ud83d\n)", 1, "\uFFFD\n");
}

TEST(JsonRecord, SaysWhatIsWrongAndWhere) {
  const auto expect_fault = [](std::string_view record, std::string_view what, int64_t offset) {
    const JsonFault fault = fault_of(record);
    ASSERT_NE(fault.what, nullptr) << record;
    EXPECT_NE(std::string_view(fault.what).find(what), std::string_view::npos) << record << ": " << fault.what;
    EXPECT_EQ(fault.offset, offset) << record;
  };
  expect_fault("", "empty", 0);
  expect_fault("hello", "not JSON", 0);
  expect_fault("42", "a number, not an object", 0);
  expect_fault("\"x\"", "a string, not an object", 0);
  expect_fault(R"(["text"])", "a list, not an object", 0);
  expect_fault("null", "bare word", 0);
  expect_fault(R"({"text":"bad)", "not closed", 8);
  expect_fault(R"({"text":"bad\)", "not closed", 12);
  expect_fault(R"({"text":"a")", "ends early", 11);
  expect_fault(R"({"text":)", "ends early", 8);
  expect_fault(R"({"text")", "ends early", 7);
  expect_fault("{", "ends early", 1);
  expect_fault(R"({"text":"a"} {"text":"b"})", "two records on one line", 13);
  expect_fault("{\"text\":\"a\"}\r{\"text\":\"b\"}", "carriage returns", 13);
  expect_fault(R"({"text":"a"} x)", "after the record", 13);
  expect_fault("{\"text\":\"a\tb\"}", "control character", 10);
  expect_fault(std::string_view("{\"text\":\"a\0b\"}", 14), "control character", 10);
  expect_fault(R"({"text":"\q"})", "escape", 9);
  expect_fault(R"({"text":"\u12g4"})", "\\u escape", 9);
  expect_fault(R"({"text":tru})", "expected a value", 8);
  expect_fault(R"({"text":01})", "leading zero", 8);
  expect_fault(R"({"text":-01})", "leading zero", 8);
  expect_fault(R"({"text":1.})", "point", 8);
  expect_fault(R"({"text":1e})", "exponent", 8);
  expect_fault(R"({"text":+1})", "expected a value", 8);
  expect_fault(R"({"text":"a",})", "a key in quotes", 12);
  expect_fault(R"({,"text":"a"})", "a key in quotes", 1);
  expect_fault(R"({"a":[1,],"text":"a"})", "expected a value", 8);
  expect_fault(R"({"a":[1,2},"text":"a"})", "',' or ']'", 9);
  expect_fault(R"({"a" 1})", "':'", 5);
  expect_fault(R"({"a":1 "b":2})", "',' or '}'", 7);
}

TEST(JsonRecord, NestingHasALimit) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + ",\"text\":\"x\"}";
  };
  EXPECT_EQ(text_of(nested(1000)), "x");
  EXPECT_STREQ(fault_of(nested(5000)).what, "nested more than 1024 deep");
  EXPECT_NE(fault_of("{\"a\":" + std::string(100000, '[')).what, nullptr);
}

TEST(JsonRecord, CutRecordsSayThatTheyAreCut) {
  const std::string record = R"({"a":[1,{"b":-2.5e3}],"text":"x\n\u00e4","c":true})";
  for (size_t size = 1; size < record.size(); ++size) {
    const JsonFault fault = fault_of(record.substr(0, size));
    ASSERT_NE(fault.what, nullptr) << size;
    EXPECT_TRUE(fault.cut_off) << size << " " << fault.what;
  }
}

TEST(JsonRecord, ListsElementsAndKeys) {
  const std::vector<JsonField> elements = json_elements(R"([ "a,]" , 1.5 ,{"x":[1]},null,[] ])");
  ASSERT_EQ(elements.size(), 5u);
  EXPECT_EQ(elements[0].raw, R"("a,]")");
  EXPECT_EQ(elements[1].raw, "1.5");
  EXPECT_EQ(elements[2].kind, JsonKind::object);
  EXPECT_EQ(elements[3].kind, JsonKind::null);
  EXPECT_EQ(elements[4].raw, "[]");
  EXPECT_TRUE(json_elements("[ ]").empty());
  EXPECT_EQ(json_keys(R"( {"a":1, "b\n" : "}" ,"c":{"d":2}} )", 10), (std::vector<std::string>{"a", "b\n", "c"}));
  EXPECT_EQ(json_keys(R"({"a":1,"b":2})", 1), std::vector<std::string>{"a"});
  EXPECT_TRUE(json_keys("{}", 10).empty());
}

// Damaged records: never a crash, and the same verdict and text as a complete JSON library wherever both apply.
TEST(JsonRecord, AgreesWithACompleteParserOnDamagedRecords) {
  testing::Random random(20240501);
  const std::string record =
      R"({"id":12.5e-3,"meta":{"lang":"en","list":[1,true,null,{"x":"\u00e4"}]},"text":"a \"quoted\" line\nand \ud83d\ude80 more","z":[]})";
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string damaged = testing::mutated(record, random);
    const std::optional<std::string> text = text_of(damaged);
    const bool python = damaged.find("NaN") != std::string::npos || damaged.find("Inf") != std::string::npos;
    const nlohmann::json parsed = nlohmann::json::parse(damaged, nullptr, false);
    JsonRecordScanner scanner({"text"});
    const bool ok = scanner.scan(damaged).what == nullptr;
    if (!parsed.is_discarded() && parsed.is_object()) {
      ASSERT_TRUE(ok) << damaged;
      if (parsed.contains("text") && parsed["text"].is_string()) {
        ASSERT_TRUE(text) << damaged;
        ASSERT_EQ(*text, parsed["text"].get<std::string>()) << damaged;
        ++accepted;
      }
    } else if (ok && !python) {
      // What the other parser refuses beyond the grammar: bytes that are not UTF-8, half surrogate pairs, huge numbers.
      bool has_high = false;
      for (char c : damaged) has_high |= static_cast<unsigned char>(c) >= 0x80;
      ASSERT_TRUE(has_high || damaged.find("\\u") != std::string::npos || damaged.find('e') != std::string::npos)
          << damaged;
    }
  }
  EXPECT_GT(accepted, 500);
}

}  // namespace
}  // namespace keel
