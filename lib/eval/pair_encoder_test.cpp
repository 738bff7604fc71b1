#include "keel/eval/pair_encoder.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace keel {
namespace {

constexpr int32_t kBos = 256, kEos = 257, kJoint = 258;

/// Bytes are ids; ": b" merges into one token, and "<s>" is BOS where control tokens are parsed.
class FakeTokenizer final : public Tokenizer {
 public:
  FakeTokenizer(bool has_bos, bool adds_bos) : has_bos_(has_bos), adds_bos_(adds_bos) {}
  std::string type() const override { return "fake"; }
  int64_t vocab_size() const override { return 259; }
  std::optional<int32_t> bos_id() const override { return has_bos_ ? std::optional(kBos) : std::nullopt; }
  std::optional<int32_t> eos_id() const override { return kEos; }
  std::optional<int32_t> unk_id() const override { return std::nullopt; }
  std::optional<int32_t> pad_id() const override { return std::nullopt; }
  bool adds_bos() const override { return adds_bos_; }
  const std::string& piece(int32_t) const override {
    static const std::string bos = "<s>";
    return bos;
  }
  std::unique_ptr<TokenDecoder> make_decoder() const override { return nullptr; }
  std::unique_ptr<TokenEncoder> make_encoder() const override {
    struct Encoder final : TokenEncoder {
      void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) override {
        while (!text.empty()) {
          const bool is_bos = special == SpecialText::parse && text.starts_with("<s>");
          const bool is_joint = text.starts_with(": b");
          ids.push_back(is_bos ? kBos : is_joint ? kJoint : static_cast<unsigned char>(text[0]));
          text.remove_prefix(is_bos || is_joint ? 3 : 1);
        }
      }
    };
    return std::make_unique<Encoder>();
  }

 private:
  bool has_bos_, adds_bos_;
};

using Ids = std::vector<int32_t>;
using Bos = PairEncoderOptions::Bos;

PairEncoder encoder(const PairEncoderOptions& options = {}, bool has_bos = true, bool adds_bos = true) {
  return {std::make_shared<FakeTokenizer>(has_bos, adds_bos), options};
}

void expect(PairEncoder encoder, const std::string& context, const std::string& continuation, const Ids& context_ids,
            const Ids& continuation_ids) {
  const ScoreRequest request = encoder.encode(context, continuation);
  EXPECT_EQ(request.context, context_ids);
  EXPECT_EQ(request.continuation, continuation_ids);
}

TEST(PairEncoder, TheContinuationIsTheTailByCount) {
  expect(encoder(), "a", " c", {kBos, 'a'}, {' ', 'c'});
  // ": b" is one token, so the context's ':' is not the beginning of the whole; the tail after three tokens is "x".
  expect(encoder(), "a:", " bx", {kBos, 'a', ':'}, {'x'});
}

TEST(PairEncoder, WhiteSpaceAtTheJointGoesToTheContinuation) {
  expect(encoder(), "a \n", "c", {kBos, 'a'}, {' ', '\n', 'c'});
  expect(encoder(), "a\xE3\x80\x80", "c", {kBos, 'a'}, {0xE3, 0x80, 0x80, 'c'});
}

TEST(PairEncoder, BosAsTheTokenizerOrTheUserHasIt) {
  expect(encoder({}, true, false), "a", "c", {'a'}, {'c'});
  expect(encoder({.bos = Bos::on}, true, false), "a", "c", {kBos, 'a'}, {'c'});
  expect(encoder({.bos = Bos::off}), "a", "c", {'a'}, {'c'});
  expect(encoder(), "<s>a", "c", {kBos, 'a'}, {'c'});  // it is there already
  KEEL_EXPECT_ERROR(encoder({.bos = Bos::on}, false), ErrorKind::usage,
                    "the tokenizer has no BOS token (--compat-bos)");
}

TEST(PairEncoder, AnEmptyContextIsThePrefix) {
  expect(encoder(), "", "ab", {kBos}, {'a', 'b'});
  expect(encoder(), "", "<s>ab", {kBos}, {'a', 'b'});
  expect(encoder({}, false, false), "", "ab", {kEos}, {'a', 'b'});
  expect(encoder({.prefix_token_id = 65}), "", "ab", {65}, {'a', 'b'});
  expect(encoder(), "  ", "ab", {kBos}, {' ', ' ', 'a', 'b'});  // white space alone: BOS is all that stays
  KEEL_EXPECT_ERROR(encoder({}, false, false).encode("  ", "ab"), ErrorKind::format, "the context has no token");
  KEEL_EXPECT_ERROR(encoder({.prefix_token_id = 259}), ErrorKind::usage,
                    "259 is no id of the tokenizer (--prefix-token-id)");
}

TEST(PairEncoder, AContinuationWithoutATokenIsAnError) {
  KEEL_EXPECT_ERROR(encoder().encode("a:", " b"), ErrorKind::format,
                    "the continuation ' b' adds no token to its context: the tokenizer merges it with what comes "
                    "before; --empty-continuation alone encodes it by itself");
  expect(encoder({.encode_empty_alone = true}), "a:", " b", {kBos, 'a', ':'}, {' ', 'b'});
}

TEST(PairEncoder, RequestsOfOneContextAreIndependent) {
  PairEncoder both = encoder();
  const ScoreRequest first = both.encode("a:", " bx"), second = both.encode("a:", "y"), third = both.encode("b", "y");
  EXPECT_EQ(first.continuation, (Ids{'x'}));
  EXPECT_EQ(second.context, (Ids{kBos, 'a', ':'}));
  EXPECT_EQ(second.continuation, (Ids{'y'}));
  EXPECT_EQ(third.context, (Ids{kBos, 'b'}));
}

}  // namespace
}  // namespace keel
