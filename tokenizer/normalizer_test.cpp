#include "keel/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

using Kind = NormalizerStep::Kind;

TEST(Normalizer, GivesNormalForms) {
  const auto form = [](NormalizerStep::Kind kind, const std::string& text) {
    std::string out;
    append_normal_form(kind, text, out);
    return out;
  };
  EXPECT_EQ(form(Kind::nfc, "ae\u0301x"), "a\u00e9x");
  EXPECT_EQ(form(Kind::nfc, "a\u0327\u0301 \u1112\u1161\u11ab"), "\u00e1\u0327 \ud55c");
  EXPECT_EQ(form(Kind::nfc, "\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(form(Kind::nfd, "x\u00e9"), "xe\u0301");
  EXPECT_EQ(form(Kind::nfkc, "\ufb01\u00b2"), "fi2");
  EXPECT_EQ(form(Kind::nfkd, "\u1e9b\u0323"), "s\u0323\u0307");
}

TEST(Normalizer, TextThatGrowsWithoutEndIsRefused) {
  const std::string many(64, 'a');
  const Normalizer explosive(std::vector<NormalizerStep>(6, {Kind::replace, "a", many}));
  EXPECT_THROW(explosive.applied("aaaa"), TextTooLong);
  EXPECT_EQ(explosive.applied("bbbb"), "bbbb");
  const Normalizer once({{Kind::replace, "a", many}});
  EXPECT_EQ(once.applied("aaaa"), std::string(256, 'a'));
  EXPECT_THROW(once.applied(std::string(1000, 'a')), TextTooLong);
  const Normalizer prepends(std::vector<NormalizerStep>(100, {Kind::prepend, {}, many}));
  EXPECT_THROW(prepends.applied("b"), TextTooLong);
}

TEST(Normalizer, TheLongestFormsHaveRoom) {
  std::string text, wanted;
  for (int i = 0; i < 1000; ++i) text += "\uFDFA";
  const Normalizer spaced({{Kind::nfkd, {}, {}}, {Kind::replace, " ", "\u2581"}});
  EXPECT_EQ(spaced.applied(text).size(), 1000u * (15 * 2 + 3 * 3));
  EXPECT_THROW(append_normal_form(Kind::nfkd, text, wanted, 32'000), TextTooLong);
}

}  // namespace
}  // namespace keel
