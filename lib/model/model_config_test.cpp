#include "keel/model/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/model/arena.h"
#include "keel/model/model_config_json.h"

namespace keel {
namespace {

ModelConfig keel_64() {
  return resolved({.vocab_size = 1000,
                   .hidden_size = 64,
                   .intermediate_size = 192,
                   .num_hidden_layers = 32,
                   .num_attention_heads = 4,
                   .num_key_value_heads = 2,
                   .max_position_embeddings = 128,
                   .residual_alpha = 2.5});
}

std::string refusal(const std::string& text) {
  try {
    parse_model_config(text, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

TEST(ModelConfigJson, RoundTrip) {
  const ModelConfig config = keel_64();
  EXPECT_EQ(parse_model_config(json_text(model_config_json(config)), "config.json"), config);
}

TEST(ModelConfigJson, KeysOfOtherSchemesAndUnknownOnesAreIgnored) {
  Json json = model_config_json(keel_64());
  json["mix_fraction"] = 0.25;
  json["admin_frozen"] = false;
  json["rope_scaling"] = nullptr;
  json["transformers_version"] = "5.0";
  EXPECT_EQ(parse_model_config(json_text(json), "config.json"), keel_64());
}

TEST(ModelConfigJson, WhatIsNotRunIsRefusedByName) {
  const auto with = [](const char* key, const Json& value) {
    Json json = model_config_json(keel_64());
    json[key] = value;
    return refusal(json_text(json));
  };
  EXPECT_NE(with("model_type", "gpt2").find("gpt2"), std::string::npos);
  EXPECT_NE(with("hidden_act", "gelu").find("gelu"), std::string::npos);
  EXPECT_NE(with("attention_bias", true).find("attention_bias"), std::string::npos);
  EXPECT_NE(with("rope_scaling", Json::object()).find("rope_scaling"), std::string::npos);
  EXPECT_NE(with("residual_scheme", "kel").find("did you mean 'keel'"), std::string::npos);
  EXPECT_NE(with("hidden_size", -3).find("hidden_size"), std::string::npos);
  EXPECT_NE(with("hidden_size", 64.5).find("hidden_size"), std::string::npos);
  EXPECT_NE(with("vocab_size", uint64_t{1} << 63).find("vocab_size"), std::string::npos);
  EXPECT_NE(refusal("{\"model_type\": \"keel\"").find("config.json:1:"), std::string::npos);
  refusal("[1]");
  refusal("{}");
}

TEST(TrainFlops, AgainstACountByHand) {
  // One block, d 2, F 3, one head of 2, vocabulary 5, T 4: 16 + 18 + 10 parameters in products.
  const ModelConfig c = resolved(
      {.vocab_size = 5, .hidden_size = 2, .intermediate_size = 3, .num_hidden_layers = 1, .num_attention_heads = 1});
  EXPECT_EQ(count_parameters(c).in_products, 16 + 18 + 10);
  // Forward attention of 4 tokens: 10 query-key pairs, two products of 2 multiply-adds each.
  EXPECT_EQ(train_flops_per_token(c, 4), 6.0 * 44 + 3.0 * (10 * 2 * 2 * 2) / 4);
}

TEST(ArenaPlan, RegionsAreAlignedAndDoNotOverlap) {
  ArenaPlan plan;
  const Region<float> a = plan.add<float>(MemoryKind::weights, 3);
  const Region<double> b = plan.add<double>(MemoryKind::workspace, 1);
  const Region<float> none = plan.add<float>(MemoryKind::weights, 0);
  EXPECT_EQ(a.offset, 0);
  EXPECT_EQ(b.offset, 64);
  EXPECT_EQ(plan.total_bytes(), 128);
  const Arena arena(plan);
  EXPECT_EQ(arena.at(none), nullptr);
  EXPECT_EQ(arena.at(a)[2], 0.0F);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.at(b)) % 64, 0U);
}

TEST(ArenaPlan, MoreThanCanBeAddressedIsAnError) {
  ArenaPlan plan;
  EXPECT_THROW(plan.add<double>(MemoryKind::activations, int64_t{1} << 61), Error);
  plan.add<double>(MemoryKind::activations, (int64_t{1} << 59));
  EXPECT_THROW(plan.add<double>(MemoryKind::activations, (int64_t{1} << 59) + (int64_t{1} << 58) * 3), Error);
}

}  // namespace
}  // namespace keel
