#include "keel/analyze/wiring_table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "keel/base/error.h"

namespace keel {
namespace {

ModelConfig model(const std::string& scheme, int64_t blocks = 4) {
  return {.num_hidden_layers = blocks, .residual_scheme = scheme};
}

std::string formula(const ModelConfig& config, int64_t l) {
  return wiring_formula(wiring_table(config)[l]);
}

TEST(WiringTable, FormulaOfEveryKindOfRow) {
  EXPECT_EQ(formula(model("keel"), 0), "x' = x + F(RMS(x))");
  EXPECT_EQ(formula(model("keel"), 1), "x' = RMS(x + F(RMS(x)))");
  EXPECT_EQ(formula(model("keel"), 2), "x' = RMS(8 x + F(RMS(x)))");
  EXPECT_EQ(formula(model("keel_attempt2"), 3), "x' = RMS(8 x + F(beta x))");
  EXPECT_EQ(formula(model("keel_attempt3"), 3), "x' = RMS(8 x + F(beta RMS(x)))");
  EXPECT_EQ(formula(model("deepnorm"), 0), "x' = LN(1.68179 x + F(x))");
  EXPECT_EQ(formula(model("hybrid"), 0), "x' = RMS(x + F_qkv(x))");
  EXPECT_EQ(formula(model("hybrid"), 1), "x' = x + F(x)");
  EXPECT_EQ(formula(model("admin"), 5), "x' = LN(omega x + F(x))");
  EXPECT_EQ(formula(model("lns"), 2), "x' = x + F(0.707107 RMS(x))");
  EXPECT_EQ(formula(model("sandwich"), 2), "x' = x + RMS(F(RMS(x)))");
  EXPECT_EQ(formula(model("olmo2"), 2), "x' = x + RMS(F_qk_full(x))");
  EXPECT_EQ(formula(model("rezero"), 2), "x' = x + lambda F(x)");
  EXPECT_EQ(formula(model("layerscale"), 2), "x' = x + lambda F(RMS(x))");
}

TEST(WiringTable, WhatIsSetBesideTheScheme) {
  ModelConfig config = model("keel");
  config.residual_alpha = 3;
  config.learnable_alpha = true;
  config.qk_norm = true;
  config.norm_type = NormKind::ln;
  EXPECT_EQ(formula(config, 2), "x' = LN(3 e^s x + F_qk(LN(x)))");
  EXPECT_EQ(formula(config, 3), "x' = LN(3 e^s x + F(LN(x)))");
  ModelConfig mix = model("mix");
  mix.mix_fraction = 0.5;
  EXPECT_EQ(formula(mix, 3), "x' = RMS(x + F(x))");
  EXPECT_EQ(formula(mix, 4), "x' = x + F(RMS(x))");
  const Json json = wiring_table_of(config).json;
  EXPECT_EQ(json["rows"][2]["qkv"], "qk_head");
  EXPECT_EQ(json["rows"][2]["skip_scale"], "exponential");
  EXPECT_EQ(json["rows"][2]["a"], 3);
  EXPECT_EQ(json["final_norm"], false);
  mix.final_norm = true;
  mix.norm_type = NormKind::ln;
  EXPECT_EQ(wiring_table_of(mix).json["final_norm_kind"], "ln");
}

TEST(WiringTable, ExplainsItsSigns) {
  ModelConfig admin = model("admin");
  EXPECT_NE(wiring_table_of(admin).text.find("omega: a learned vector\n"), std::string::npos);
  admin.admin_frozen = true;
  EXPECT_NE(wiring_table_of(admin).text.find("omega: a vector, constant\n"), std::string::npos);
  EXPECT_NE(wiring_table_of(model("rezero")).text.find("lambda: a learned scalar, one a block\n"), std::string::npos);
  EXPECT_EQ(wiring_table_of(model("pre")).text.find(": "), std::string::npos);
}

TEST(WiringTable, FitsEightyColumns) {
  for (const ResidualScheme& scheme : residual_schemes()) {
    ModelConfig config = model(std::string(scheme.name), 600);
    config.learnable_alpha = scheme.accepts_alpha;
    if (scheme.accepts_alpha) config.residual_alpha = 1.2345678e-5;
    config.qk_norm = wiring_table(model(std::string(scheme.name)))[0].qkv == QkvNorm::none;
    std::istringstream lines(wiring_table_of(config).text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80) << line;
  }
}

TEST(WiringTable, RefusesWhatHasNoMeaning) {
  ModelConfig config = model("pre");
  config.mix_fraction = 0.5;
  EXPECT_THROW(wiring_table_of(config), Error);
}

}  // namespace
}  // namespace keel
