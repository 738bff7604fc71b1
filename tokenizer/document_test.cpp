#include "keel/tokenizer/document.h"

#include "keel/tokenizer/test_support.h"

namespace keel {
namespace {

class DocumentTest : public ::testing::Test {
 protected:
  const ParsedDocument& parse(std::string_view bytes, DocumentFormat format = DocumentFormat::jsonl) {
    DocumentParser parser(options_);
    is_record_ = parser.parse(format, {bytes, 1, 0}, document_);
    return document_;
  }
  std::string text(std::string_view bytes) { return parse(bytes).reason ? "dropped" : document_.text; }
  std::optional<DropReason> reason(std::string_view bytes) { return parse(bytes).reason; }

  DocumentOptions options_;
  ParsedDocument document_;
  bool is_record_ = false;
};

TEST_F(DocumentTest, EveryReason) {
  EXPECT_EQ(text(R"({"text":"a"})"), "a");
  EXPECT_EQ(text("\t{\"text\":\"  \"}\r"), "  ");
  EXPECT_EQ(reason(R"({"text":""})"), DropReason::empty);
  EXPECT_EQ(reason(R"({"x":1})"), DropReason::missing);
  EXPECT_EQ(reason(R"({"text":null})"), DropReason::null);
  EXPECT_EQ(reason(R"({"text":5})"), DropReason::bad_type);
  EXPECT_EQ(reason(R"({"text":{}})"), DropReason::bad_type);
  EXPECT_EQ(reason(R"({"text":["a"]})"), DropReason::bad_type);
  EXPECT_EQ(reason(R"({"text":"a)"), DropReason::bad_json);
  EXPECT_EQ(reason("42"), DropReason::bad_json);
  EXPECT_EQ(reason("{\"text\":\"\xFF\"}"), DropReason::bad_utf8);
  EXPECT_EQ(reason("{\"x\":\"\xFF\",\"text\":\"a\"}"), DropReason::bad_utf8);
  EXPECT_EQ(reason(R"({"text":"\ud83d"})"), DropReason::bad_utf8);
  EXPECT_EQ(reason(R"({"x":"\ud83d","text":"a"})"), std::nullopt);
  parse("");
  EXPECT_FALSE(is_record_);
  parse(" \t\r");
  EXPECT_FALSE(is_record_);
}

TEST_F(DocumentTest, RepairsOnRequest) {
  options_.replace_invalid_utf8 = true;
  EXPECT_EQ(text("{\"text\":\"a\xFF"
                 "b\xE2\x82\"}"),
            "a\uFFFD"
            "b\uFFFD");
  EXPECT_EQ(document_.replaced_bytes, 2);
  EXPECT_EQ(text(R"({"text":"\ude80\ud83d"})"), "\uFFFD\uFFFD");
  EXPECT_EQ(document_.replaced_surrogates, 2);
  EXPECT_EQ(text("{\"x\":\"\xFF\",\"text\":\"a\"}"), "a");
  EXPECT_EQ(document_.replaced_bytes, 0);
  EXPECT_EQ(reason("\xFF{\"text\":\"a\"}"), DropReason::bad_json);
}

TEST_F(DocumentTest, Lists) {
  options_.text_is_list = true;
  EXPECT_EQ(text(R"({"text":["a","","bc"]})"), "abc");
  EXPECT_EQ(document_.part_ends, (std::vector<int64_t>{1, 1, 3}));
  EXPECT_EQ(text(R"({"text":"a"})"), "a");
  EXPECT_EQ(reason(R"({"text":["a",1]})"), DropReason::bad_type);
  EXPECT_EQ(reason(R"({"text":[]})"), DropReason::empty);
  EXPECT_EQ(reason(R"({"text":7})"), DropReason::bad_type);
}

TEST_F(DocumentTest, Limits) {
  options_.max_bytes = 4;
  options_.max_record_bytes = 30;
  EXPECT_EQ(text(R"({"text":"abcd"})"), "abcd");
  EXPECT_EQ(reason(R"({"text":"abcde"})"), DropReason::too_long);
  EXPECT_EQ(reason(R"({"x":"a long other field","text":"a"})"), DropReason::too_long);
  options_.text_is_list = true;
  EXPECT_EQ(reason(R"({"text":["abc","de"]})"), DropReason::too_long);
  EXPECT_EQ(parse("abcd", DocumentFormat::txt).reason, std::nullopt);
  EXPECT_EQ(parse("abcde", DocumentFormat::txt).reason, DropReason::too_long);
}

TEST_F(DocumentTest, PlainText) {
  EXPECT_EQ(parse("a {\"b\"}", DocumentFormat::txt).text, "a {\"b\"}");
  EXPECT_EQ(parse("", DocumentFormat::txt).reason, DropReason::empty);
  EXPECT_EQ(parse("a\x80", DocumentFormat::txt).reason, DropReason::bad_utf8);
  EXPECT_TRUE(is_record_);
}

TEST_F(DocumentTest, Conditions) {
  const auto holds = [&](const char* condition, std::string_view value) {
    options_.conditions = {Condition(condition)};
    return !reason("{\"x\":" + std::string(value) + ",\"text\":\"a\"}");
  };
  EXPECT_TRUE(holds("x>=3", "3"));
  EXPECT_TRUE(holds("x>=3", "3.0"));
  EXPECT_FALSE(holds("x>=3", "2.999"));
  EXPECT_TRUE(holds("x < -1e2", "-101"));
  EXPECT_TRUE(holds("x>3", "\"10\""));  // numbers that stand in strings
  EXPECT_FALSE(holds("x>3", "\"ten\""));
  EXPECT_FALSE(holds("x>3", "null"));
  EXPECT_TRUE(holds("x!=3", "\"ten\""));
  EXPECT_TRUE(holds("x>'3'", "\"ten\""));
  EXPECT_TRUE(holds("x==en", "\"en\""));
  EXPECT_FALSE(holds("x==en", "\"de\""));
  EXPECT_TRUE(holds("x=en", "\"en\""));
  EXPECT_TRUE(holds("x!=en", "\"de\""));
  EXPECT_TRUE(holds("x=='3'", "\"3\""));
  EXPECT_FALSE(holds("x==en", "5"));
  EXPECT_TRUE(holds("x==true", "true"));
  EXPECT_TRUE(holds("x==''", "\"\""));
  EXPECT_TRUE(holds("x.y<=2", "{\"y\":1}"));
  EXPECT_FALSE(holds("x.y<=2", "{}"));
  EXPECT_TRUE(holds("x!=3", "NaN"));
  options_.conditions = {Condition("x>=3"), Condition("y<2")};
  EXPECT_EQ(reason(R"({"x":3,"y":1,"text":"a"})"), std::nullopt);
  EXPECT_EQ(reason(R"({"x":3,"y":2,"text":"a"})"), DropReason::filtered);
  for (const char* bad : {"", "x", ">=3", "x~3", " =1", "x=", "x>="})
    testing::expect_error(ErrorKind::usage, "--where", [&] { Condition{bad}; });
}

TEST_F(DocumentTest, Ids) {
  DocumentParser parser(options_);
  EXPECT_EQ(parser.id_of({R"({"id":"a\u00e4","text":1})", 1, 0}), "aä");
  EXPECT_EQ(parser.id_of({R"({"id":17})", 1, 0}), "17");
  EXPECT_EQ(parser.id_of({R"({"id":null})", 1, 0}), "");
  EXPECT_EQ(parser.id_of({R"({"id":)", 1, 0}), "");
}

}  // namespace
}  // namespace keel
