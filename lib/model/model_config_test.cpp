#include "keel/model/model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/model/arena.h"
#include "keel/model/model_config_json.h"
#include "support/mutate.h"

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

TEST(ModelConfigJson, EveryOptionMakesTheRoundTrip) {
  ModelConfig config = keel_64();
  config.attention_bias = config.qkv_bias = config.mlp_bias = config.qk_norm = true;
  config.tie_word_embeddings = true;
  config.sliding_window = 7;
  config.sliding_layers.assign(32, false);
  config.sliding_layers[3] = true;
  config.rope_scaling = {RopeScaling::Kind::llama3, 8, 1.5, 4.5, 8192};
  EXPECT_EQ(parse_model_config(json_text(model_config_json(config)), "config.json"), config);
  config.rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = 2};
  EXPECT_EQ(parse_model_config(json_text(model_config_json(config)), "config.json"), config);
}

ModelConfig pre_64() {
  ModelConfig config = keel_64();
  config.residual_scheme = "pre";
  config.residual_alpha.reset();
  return config;
}

TEST(ModelConfigJson, AFamilyIsNamedOnlyWhereItIsExact) {
  std::map<std::string, std::vector<ModelConfig>> of;
  of["keel"] = {keel_64()};
  of["llama"] = {pre_64()};
  const auto add = [&](const char* family, auto change) {
    of[family].push_back(pre_64());
    change(of[family].back());
  };
  add("keel", [](ModelConfig& c) { c.final_norm = false; });
  add("keel", [](ModelConfig& c) { c.qkv_bias = c.mlp_bias = true; });
  add("keel", [](ModelConfig& c) { c.qkv_bias = c.qk_norm = true; });
  add("keel", [](ModelConfig& c) { c.sliding_window = 4, c.mlp_bias = true; });
  add("llama", [](ModelConfig& c) { c.attention_bias = c.mlp_bias = true; });
  add("llama", [](ModelConfig& c) { c.head_dim = 24; });
  add("mistral", [](ModelConfig& c) { c.sliding_window = 4; });
  add("qwen2", [](ModelConfig& c) { c.qkv_bias = true; });
  add("qwen2", [](ModelConfig& c) { c.qkv_bias = true, c.sliding_window = 9, c.sliding_layers.assign(32, true); });
  add("keel", [](ModelConfig& c) { c.qkv_bias = true, c.head_dim = 24; });
  add("keel", [](ModelConfig& c) { c.num_attention_heads = 6, c.head_dim = 10; });  // LlamaConfig wants 64 % 6 == 0
  add("qwen3", [](ModelConfig& c) { c.num_attention_heads = 6, c.head_dim = 10, c.qk_norm = true; });
  add("qwen3", [](ModelConfig& c) { c.qk_norm = true, c.head_dim = 24; });
  add("qwen3", [](ModelConfig& c) { c.qk_norm = c.attention_bias = true; });
  add("llama", [](ModelConfig& c) { c.norm_type = NormKind::rms; });
  add("keel", [](ModelConfig& c) { c.norm_type = NormKind::ln; });
  add("keel", [](ModelConfig& c) { c.residual_scheme = "sandwich"; });  // Gemma 2 has more than that
  const auto add_olmo2 = [&](const char* family, auto change) {
    add(family, [&](ModelConfig& c) { c.residual_scheme = "olmo2", change(c); });
  };
  add_olmo2("olmo2", [](ModelConfig&) {});
  add_olmo2("olmo2", [](ModelConfig& c) { c.attention_bias = c.tie_word_embeddings = true; });
  add_olmo2("olmo2", [](ModelConfig& c) { c.norm_type = NormKind::rms; });
  add_olmo2("keel", [](ModelConfig& c) { c.norm_type = NormKind::ln; });
  add_olmo2("keel", [](ModelConfig& c) { c.final_norm = false; });
  add_olmo2("keel", [](ModelConfig& c) { c.qkv_bias = true; });
  add_olmo2("keel", [](ModelConfig& c) { c.mlp_bias = true; });
  add_olmo2("keel", [](ModelConfig& c) { c.head_dim = 24; });
  add_olmo2("keel", [](ModelConfig& c) { c.sliding_window = 4; });
  for (const auto& [family, configs] : of) {
    for (const ModelConfig& config : configs) {
      SCOPED_TRACE(json_text(model_config_json(config)));
      EXPECT_EQ(hugging_face_family(config), family);
      ModelConfig read = parse_model_config(json_text(model_config_json(config, family)), "config.json");
      if (family != "keel" && !read.norm_type) read.norm_type = config.norm_type;  // rms goes without saying
      EXPECT_EQ(read, config);
    }
  }
}

TEST(ModelConfigJson, AbsentKeysHaveTheFamilysDefaults) {
  const auto parse = [](const std::string& text) { return parse_model_config(text, "config.json"); };
  const ModelConfig llama = parse(R"({"model_type": "llama"})");
  EXPECT_EQ(llama.vocab_size, 32000);
  EXPECT_EQ(llama.num_key_value_heads, 32);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.residual_scheme, "pre");
  const ModelConfig mistral = parse(R"({"model_type": "mistral"})");
  EXPECT_EQ(mistral.window(31), 4096);
  EXPECT_EQ(mistral.num_key_value_heads, 8);
  EXPECT_EQ(parse(R"({"model_type": "mistral", "sliding_window": null})").sliding_window, 0);
  EXPECT_EQ(parse(R"({"model_type": "mistral", "num_key_value_heads": null})").num_key_value_heads, 32);
  const ModelConfig qwen2 = parse(R"({"model_type": "qwen2", "sliding_window": 4096})");
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.attention_bias);
  EXPECT_EQ(qwen2.sliding_window, 0) << "use_sliding_window is false";
  const ModelConfig windows = parse(R"({"model_type": "qwen2", "use_sliding_window": true})");
  EXPECT_EQ(windows.window(27), 0);
  EXPECT_EQ(windows.window(28), 4096);
  const ModelConfig qwen3 = parse(R"({"model_type": "qwen3", "hidden_size": 48, "num_attention_heads": 6,
                                      "num_key_value_heads": 2})");
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.has_qkv_bias());
  const ModelConfig olmo2 = parse(R"({"model_type": "olmo2", "sliding_window": 8, "mlp_bias": true, "qk_norm": true,
                                      "residual_scheme": "pre"})");
  EXPECT_EQ(olmo2.vocab_size, 50304);
  EXPECT_EQ(olmo2.intermediate_size, 11008);
  EXPECT_EQ(olmo2.rms_norm_eps, 1e-5);
  EXPECT_EQ(olmo2.residual_scheme, "olmo2");
  EXPECT_TRUE(olmo2.sliding_window == 0 && !olmo2.mlp_bias && !olmo2.qk_norm) << "Olmo2 has no such options";
}

TEST(ModelConfigJson, RopeInBothSpellings) {
  const std::string head = R"({"model_type": "llama", )";
  const auto parse = [&](const std::string& rest) { return parse_model_config(head + rest + "}", "config.json"); };
  const ModelConfig newer = parse(
      R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8, "low_freq_factor": 1,
         "high_freq_factor": 4, "original_max_position_embeddings": 8192})");
  const ModelConfig older = parse(
      R"("rope_theta": 5e5, "rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1,
         "high_freq_factor": 4, "original_max_position_embeddings": 8192})");
  EXPECT_EQ(newer, older);
  EXPECT_EQ(newer.rope_theta, 5e5);
  EXPECT_EQ(parse(R"("rope_parameters": {"rope_theta": 7.0})").rope_theta, 7);
}

// Llama 3.1's scaling at head_dim 8, theta 1e4, factor 8, original 32: wavelengths 6.28, 62.8, 628, 6283 against the
// bounds 32 / 4 and 32 / 1.
TEST(RopeFrequencies, Llama3KeepsShortWavelengthsAndStretchesLongOnes) {
  ModelConfig c = pre_64();
  c.head_dim = 8;
  c.rope_scaling = {RopeScaling::Kind::llama3, 8, 1, 4, 32};
  const std::vector<double> f = rope_frequencies(c);
  ASSERT_EQ(f.size(), 4U);
  EXPECT_DOUBLE_EQ(f[0], 1);
  EXPECT_DOUBLE_EQ(f[1], 0.1 / 8);
  EXPECT_DOUBLE_EQ(f[3], 1e-3 / 8);
  c.rope_scaling.original_max_position_embeddings = 125;  // 125 / 62.83 = 1.98944 turns: between the bounds
  const double s = (125 * 0.1 / (2 * M_PI) - 1) / 3;
  EXPECT_NEAR(rope_frequencies(c)[1], 0.1 * ((1 - s) / 8 + s), 1e-16);
}

TEST(ModelConfigJson, RopeAsTransformersResolvesIt) {
  const std::string head = R"({"model_type": "llama", "max_position_embeddings": 40, )";
  const auto parse = [&](const std::string& rest) { return parse_model_config(head + rest + "}", "config.json"); };
  const ModelConfig older_wins = parse(R"("rope_theta": 7, "rope_scaling": {"type": "linear", "factor": 2},
      "rope_parameters": {"rope_type": "default", "rope_theta": 9})");
  EXPECT_EQ(older_wins.rope_theta, 7);
  EXPECT_EQ(older_wins.rope_scaling.factor, 2);
  EXPECT_EQ(parse(R"("rope_theta": 7, "rope_scaling": {}, "rope_parameters": {})").rope_theta, 7);
  EXPECT_EQ(parse(R"("rope_theta": 7, "rope_scaling": null, "rope_parameters": {"rope_theta": 9})").rope_theta, 9);
  const std::string llama3 = R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4)";
  const auto original = [&](const std::string& rest) {
    return parse("\"rope_scaling\": " + llama3 + rest).rope_scaling.original_max_position_embeddings;
  };
  EXPECT_EQ(original("}"), 40);
  EXPECT_EQ(original(R"(, "original_max_position_embeddings": 32})"), 32);
  EXPECT_EQ(original(R"(, "original_max_position_embeddings": 32}, "original_max_position_embeddings": 24)"), 24);
}

TEST(ModelConfigJson, KeysOfOtherSchemesAndUnknownOnesAreIgnored) {
  Json json = model_config_json(keel_64());
  json["hidden_act"] = "swish";
  json["num_experts"] = 0;
  json["final_logit_softcapping"] = nullptr;
  json["use_sliding_window"] = false;
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
  EXPECT_NE(with("attention_bias", 1).find("attention_bias"), std::string::npos);
  EXPECT_NE(with("rope_scaling", {{"factor", 2}}).find("no rope_type"), std::string::npos);
  for (const char* type : {"yarn", "dynamic", "longrope", "mrope"}) {
    EXPECT_NE(with("rope_scaling", {{"rope_type", type}, {"factor", 2}}).find(type), std::string::npos);
  }
  EXPECT_NE(with("rope_scaling", {{"full_attention", Json::object()}}).find("by layer type"), std::string::npos);
  EXPECT_NE(with("rope_scaling", {{"type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 0.5}}).find("partial"),
            std::string::npos);
  EXPECT_NE(with("rope_scaling", {{"type", "yarn"}}).find("yarn"), std::string::npos);
  EXPECT_NE(with("rope_scaling", {{"type", "linear"}}).find("no factor"), std::string::npos);
  EXPECT_NE(with("rope_scaling", {{"type", "linear"}, {"factor", "2"}}).find("rope_scaling.factor"), std::string::npos);
  EXPECT_NE(with("partial_rotary_factor", 0.5).find("partial_rotary_factor"), std::string::npos);
  EXPECT_NE(with("quantization_config", Json::object()).find("quantised"), std::string::npos);
  EXPECT_NE(with("layer_types", {"chunked_attention"}).find("chunked_attention"), std::string::npos);
  for (const char* key : {"final_logit_softcapping", "attn_logit_softcapping", "residual_multiplier", "num_experts"}) {
    EXPECT_NE(with(key, 30.0).find(key), std::string::npos);
  }
  EXPECT_NE(with("sliding_window", -1).find("sliding_window"), std::string::npos);
  EXPECT_NE(with("residual_scheme", "kel").find("did you mean 'keel'"), std::string::npos);
  EXPECT_NE(with("num_key_value_heads", 0).find("num_key_value_heads"), std::string::npos);
  EXPECT_NE(with("head_dim", 0).find("head_dim"), std::string::npos);
  EXPECT_NE(with("hidden_size", -3).find("hidden_size"), std::string::npos);
  EXPECT_NE(with("hidden_size", 64.5).find("hidden_size"), std::string::npos);
  EXPECT_NE(with("vocab_size", uint64_t{1} << 63).find("vocab_size"), std::string::npos);
  EXPECT_NE(refusal("{\"model_type\": \"keel\"").find("config.json:1:"), std::string::npos);
  Json windowed = model_config_json(keel_64());
  windowed["sliding_window"] = 8;
  windowed["layer_types"] = {"full_attention"};
  EXPECT_NE(refusal(json_text(windowed)).find("layer_types has 1"), std::string::npos);
  windowed["sliding_window"] = nullptr;
  EXPECT_NE(refusal(json_text(windowed)).find("layer_types has 1"), std::string::npos);
  windowed["layer_types"] = Json(std::vector<std::string>(32, "sliding_attention"));
  EXPECT_NE(refusal(json_text(windowed)).find("no sliding_window"), std::string::npos);
  refusal("[1]");
  refusal("{}");
}

TEST(ModelConfigJson, MutatedFilesAreReadOrRefused) {
  ModelConfig config = keel_64();
  config.sliding_window = 7;
  config.sliding_layers.assign(32, true);
  config.rope_scaling = {RopeScaling::Kind::llama3, 8, 1.5, 4.5, 8192};
  const std::string text = json_text(model_config_json(config), 1);
  testing::Random random(5);
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    try {
      (void)parse_model_config(testing::mutated(text, random), "config.json");
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::format) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(ModelConfig, NormsNeedAnEpsThatIsA32BitNumberAboveZero) {
  ModelConfig c{
      .vocab_size = 5, .hidden_size = 2, .intermediate_size = 3, .num_hidden_layers = 1, .num_attention_heads = 1};
  for (const double eps : {0.0, -1e-5, 1e-300, 1e300}) {
    c.rms_norm_eps = eps;
    EXPECT_THROW(resolved(c), Error) << eps;
  }
}

TEST(ModelConfig, NormTypeOfAModelWithoutNormsIsRefused) {
  ModelConfig c{
      .vocab_size = 5, .hidden_size = 2, .intermediate_size = 3, .num_hidden_layers = 1, .num_attention_heads = 1};
  c.residual_scheme = "rezero";
  c.norm_type = NormKind::ln;
  EXPECT_THROW(resolved(c), Error);
  c.final_norm = true;
  EXPECT_EQ(final_norm_kind(resolved(c)), NormKind::ln);
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
