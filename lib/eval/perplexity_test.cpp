#include "keel/eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

// Each count is len(re.split(r"\s+", text)) of Python 3.11.
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
