#include "keel/eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

// Each count is len(re.split(r"\s+", text)) of Python 3.11.
TEST(Perplexity, WordsAsPythonSplitsThem) {
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

TEST(Perplexity, FromTheLogLikelihood) {
  const Json json = perplexity_json(-6, {.tokens = 3, .words = 2, .bytes = 12});
  EXPECT_DOUBLE_EQ(json["nats_per_token"].get<double>(), 2);
  EXPECT_DOUBLE_EQ(json["token_perplexity"].get<double>(), std::exp(2));
  EXPECT_DOUBLE_EQ(json["word_perplexity"].get<double>(), std::exp(3));
  EXPECT_DOUBLE_EQ(json["byte_perplexity"].get<double>(), std::exp(0.5));
  EXPECT_DOUBLE_EQ(json["bits_per_byte"].get<double>(), 0.5 / std::log(2));
  EXPECT_TRUE(perplexity_json(0, {})["nats_per_token"].is_null());
}

}  // namespace
}  // namespace keel
