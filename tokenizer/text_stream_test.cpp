#include "keel/tokenizer/text_stream.h"

#include <gtest/gtest.h>

namespace keel {
namespace {

/// One id a byte; gives out whole characters, as decoders do.
class ByteDecoder final : public TokenDecoder {
 public:
  void append(int32_t id, std::string& text) override {
    waiting_ += static_cast<char>(id);
    const auto lead = static_cast<unsigned char>(waiting_[0]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (waiting_.size() < length) return;
    text += waiting_;
    waiting_.clear();
  }
  void finish(std::string& text) override {
    if (!waiting_.empty()) text += "\xEF\xBF\xBD";
    waiting_.clear();
  }

 private:
  std::string waiting_;
};

struct Streamed {
  std::vector<std::string> parts;  // what each token gave out
  std::string all;
  bool stopped = false;
};

Streamed stream(const std::string& bytes, std::vector<std::string> stops) {
  TextStream text(std::make_unique<ByteDecoder>(), std::move(stops));
  Streamed result;
  for (char byte : bytes) {
    std::string part;
    result.stopped = !text.append(static_cast<unsigned char>(byte), part);
    result.parts.push_back(part);
    result.all += part;
    if (result.stopped) return result;
  }
  text.finish(result.all);
  return result;
}

TEST(TextStream, WithoutStopStringsEverythingComesAtOnce) {
  EXPECT_EQ(stream("abc", {}).parts, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(stream("abc", {""}).all, "abc");
}

TEST(TextStream, NothingOfAStopStringIsShown) {
  const Streamed s = stream("one\n\ntwo", {"\n\n"});
  EXPECT_EQ(s.all, "one");
  EXPECT_TRUE(s.stopped);
  EXPECT_EQ(s.parts.size(), 5U) << "ends with the token that completes it";
}

TEST(TextStream, ABeginningThatComesToNothingIsGivenOutLater) {
  const Streamed s = stream("a\nb", {"\n\n"});
  EXPECT_EQ(s.parts, (std::vector<std::string>{"a", "", "\nb"}));
  EXPECT_EQ(stream("a\n", {"\n\n"}).all, "a\n") << "the end gives out what was held";
  EXPECT_EQ(stream("aabaabaac", {"aabaac"}).all, "aab") << "the beginning may begin again inside";
}

TEST(TextStream, TheStopStringThatBeginsFirstCounts) {
  EXPECT_EQ(stream("xabcd", {"cd", "bcd"}).all, "xa");
  EXPECT_EQ(stream("xabc", {"abcde", "bc"}).all, "xa");
}

TEST(TextStream, ThePromptIsNotShownAndNoPartOfAStopString) {
  const std::vector<int32_t> prompt{'a', '\n'};
  TextStream text(std::make_unique<ByteDecoder>(), {"\n\n"}, prompt);
  std::string shown;
  EXPECT_TRUE(text.append('\n', shown));
  EXPECT_TRUE(text.append('b', shown));
  EXPECT_EQ(shown, "\nb");
}

TEST(TextStream, CharactersAreNeverCut) {
  const Streamed s = stream("h\xC3\xA9!", {"\xC3\xA9?"});
  EXPECT_EQ(s.parts, (std::vector<std::string>{"h", "", "", "\xC3\xA9!"}));
  EXPECT_EQ(stream("h\xC3", {"x"}).all, "h\xEF\xBF\xBD");
  EXPECT_EQ(stream("h\xC3", {"\xEF\xBF\xBD"}).all, "h");
}

}  // namespace
}  // namespace keel
