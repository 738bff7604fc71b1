#include "keel/train/profile_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

TEST(ProfileLine, ArraysBySublayerAndByBlock) {
  GradientProfile profile{.sublayers = std::vector<SublayerProfile>(6),
                          .final_stream_gradient_norm = 7,
                          .final_stream_rms = 8,
                          .log_skip_product = -0.5,
                          .weight_gradient_norms = {{"embedding", 3}, {"head", 4}}};
  for (int64_t l = 0; l < 6; ++l) {
    SublayerProfile& s = profile.sublayers[l];
    s.stream_gradient_norm = static_cast<double>(l);
    s.skip_gain = static_cast<double>(10 + l);
    if (l % 2 == 0) s.weight_gradient_norms.push_back({"q_proj", static_cast<double>(20 + l)});
    if (l == 2) s.weight_gradient_norms.push_back({"outer_attention_layernorm", 1});
  }
  const Json line = profile_line(5, 320, profile);
  EXPECT_EQ(line["step"], 5);
  EXPECT_EQ(line["tokens"], 320);
  EXPECT_EQ(line["stream_gradient_norm"], Json({0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0}));
  EXPECT_EQ(line["skip_gain"], Json({10.0, 11.0, 12.0, 13.0, 14.0, 15.0}));
  EXPECT_EQ(line["stream_rms"][6], 8);
  const Json& weights = line["sublayer_weight_gradient_norm"];
  EXPECT_EQ(weights["q_proj"], Json({20.0, 22.0, 24.0}));
  EXPECT_EQ(weights["outer_attention_layernorm"], Json({nullptr, 1.0, nullptr}));
  EXPECT_EQ(line["weight_gradient_norm"]["head"], 4);
  EXPECT_FALSE(line.contains("non_finite"));
}

TEST(ProfileLine, NamesWhatIsNotFinite) {
  GradientProfile profile{.sublayers = std::vector<SublayerProfile>(2)};
  profile.sublayers[1].stream_rms = NAN;
  profile.log_skip_product = -INFINITY;
  profile.sublayers[0].weight_gradient_norms = {{"q_proj.bias", INFINITY}};
  const Json line = profile_line(1, 1, profile);
  EXPECT_TRUE(line["stream_rms"][1].is_null());
  EXPECT_EQ(line["non_finite"], Json({{"/stream_rms/1", "nan"},
                                      {"/log_skip_product", "-inf"},
                                      {"/sublayer_weight_gradient_norm/q_proj.bias/0", "inf"}}));
}

}  // namespace
}  // namespace keel
