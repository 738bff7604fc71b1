#include "keel/model/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace keel {
namespace {

ModelConfig small(const std::string& scheme, bool tied = false) {
  return resolved({.vocab_size = 37,
                   .hidden_size = 10,
                   .intermediate_size = 14,
                   .num_hidden_layers = 3,
                   .num_attention_heads = 5,
                   .num_key_value_heads = 1,
                   .tie_word_embeddings = tied,
                   .residual_scheme = scheme});
}

const Parameter* find(const ParameterLayout& layout, const std::string& name) {
  for (const Parameter& p : layout.parameters) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

TEST(ParameterLayout, NamesFollowTheWiring) {
  const ParameterLayout keel = parameter_layout(small("keel"));
  EXPECT_EQ(find(keel, "model.layers.0.outer_attention_layernorm.weight"), nullptr);
  EXPECT_NE(find(keel, "model.layers.0.outer_feedforward_layernorm.weight"), nullptr);
  EXPECT_NE(find(keel, "model.layers.1.outer_attention_layernorm.weight"), nullptr);
  EXPECT_EQ(find(keel, "model.norm.weight"), nullptr);
  const ParameterLayout post = parameter_layout(small("post"));
  EXPECT_EQ(find(post, "model.layers.0.input_layernorm.weight"), nullptr);
  EXPECT_NE(find(post, "model.layers.0.outer_attention_layernorm.weight"), nullptr);
  const ParameterLayout pre = parameter_layout(small("pre"));
  EXPECT_NE(find(pre, "model.layers.2.post_attention_layernorm.weight"), nullptr);
  EXPECT_NE(find(pre, "model.norm.weight"), nullptr);
  EXPECT_EQ(parameter_layout(small("keel_v1")).parameters.size(), keel.parameters.size() - 1);
}

TEST(ParameterLayout, TiedModelsHaveNoHead) {
  const ParameterLayout tied = parameter_layout(small("keel", true));
  EXPECT_EQ(find(tied, "lm_head.weight"), nullptr);
  EXPECT_EQ(tied.head, tied.embedding);
}

TEST(ParameterLayout, CountAgreesWithTheList) {
  for (const ResidualScheme& scheme : residual_schemes()) {
    for (bool tied : {false, true}) {
      ModelConfig config = small(std::string(scheme.name), tied);
      config.attention_bias = config.mlp_bias = config.qk_norm = tied;
      config.qkv_bias = !tied;
      int64_t total = 0, in_products = 0;
      for (const Parameter& p : parameter_layout(config).parameters) {
        total += p.size;
        if (p.is_matrix() && (tied || p.parameter_class != ParameterClass::embedding)) in_products += p.size;
      }
      EXPECT_EQ(count_parameters(config).total, total) << scheme.name;
      EXPECT_EQ(count_parameters(config).in_products, in_products) << scheme.name;
    }
  }
}

TEST(ParameterLayout, BiasesAndHeadNormsWhereTheConfigHasThem) {
  ModelConfig config = small("pre");
  config.qkv_bias = config.qk_norm = true;
  const ParameterLayout qwen = parameter_layout(config);
  EXPECT_EQ(find(qwen, "model.layers.1.self_attn.q_proj.bias")->shape, std::vector<int64_t>{10});
  EXPECT_EQ(find(qwen, "model.layers.1.self_attn.k_norm.weight")->shape, std::vector<int64_t>{2});
  EXPECT_EQ(find(qwen, "model.layers.1.self_attn.o_proj.bias"), nullptr);
  EXPECT_EQ(find(qwen, "model.layers.1.mlp.gate_proj.bias"), nullptr);
  EXPECT_EQ(find(qwen, "model.layers.0.self_attn.v_proj.bias")->parameter_class, ParameterClass::scalar);
  config = small("keel");
  config.attention_bias = config.mlp_bias = true;
  const ParameterLayout biased = parameter_layout(config);
  EXPECT_NE(find(biased, "model.layers.2.self_attn.v_proj.bias"), nullptr);
  EXPECT_NE(find(biased, "model.layers.2.self_attn.o_proj.bias"), nullptr);
  EXPECT_NE(find(biased, "model.layers.2.mlp.down_proj.bias"), nullptr);
  const SublayerParameters& attention = biased.sublayers[2];
  EXPECT_EQ(biased.at(attention.q_bias).offset + 10, biased.at(attention.k_bias).offset);
  EXPECT_EQ(biased.at(attention.k_bias).offset + 2, biased.at(attention.v_bias).offset);
  EXPECT_EQ(biased.at(biased.sublayers[3].gate_bias).offset + 14, biased.at(biased.sublayers[3].up_bias).offset);
}

TEST(ParameterLayout, GroupsOfOneProductHaveNoGapAndNothingOverlaps) {
  const ParameterLayout layout = parameter_layout(small("keel"));
  int64_t end = 0;
  for (const Parameter& p : layout.parameters) {
    EXPECT_GE(p.offset, end) << p.name;
    end = p.offset + p.size;
  }
  EXPECT_LE(end, layout.size);
  for (const SublayerParameters& s : layout.sublayers) {
    if (s.q_proj >= 0) {
      EXPECT_EQ(layout.at(s.q_proj).offset + layout.at(s.q_proj).size, layout.at(s.k_proj).offset);
      EXPECT_EQ(layout.at(s.k_proj).offset + layout.at(s.k_proj).size, layout.at(s.v_proj).offset);
      EXPECT_EQ(layout.at(s.q_proj).offset % 16, 0);
    } else {
      EXPECT_EQ(layout.at(s.gate_proj).offset + layout.at(s.gate_proj).size, layout.at(s.up_proj).offset);
    }
  }
}

std::map<std::string, std::vector<float>> drawn(const ModelConfig& config, uint64_t seed, int threads) {
  const ParameterLayout layout = parameter_layout(config);
  std::vector<float> weights(layout.size, NAN);
  initialise_parameters(layout, seed, threads, {weights.data(), {layout.size}});
  for (float w : weights) EXPECT_TRUE(std::isfinite(w)) << "gaps are zero";
  std::map<std::string, std::vector<float>> values;
  for (const Parameter& p : layout.parameters) {
    values[p.name] = {weights.begin() + p.offset, weights.begin() + p.offset + p.size};
  }
  return values;
}

TEST(InitialiseParameters, DependOnSeedAndNameAlone) {
  const auto keel = drawn(small("keel"), 1, 1), pre = drawn(small("pre"), 1, 3), other = drawn(small("keel"), 2, 1);
  for (const auto& [name, values] : pre) {
    if (keel.contains(name)) {
      EXPECT_EQ(keel.at(name), values) << name;
    }
  }
  EXPECT_NE(keel.at("lm_head.weight"), other.at("lm_head.weight"));
  EXPECT_NE(keel.at("model.layers.0.mlp.up_proj.weight"), keel.at("model.layers.0.mlp.gate_proj.weight"));
}

TEST(InitialiseParameters, MatricesAreNormalGainsAreOne) {
  ModelConfig config = small("keel");
  config.vocab_size = 20000;  // more than one piece of the parallel draw
  const auto values = drawn(config, 3, 2);
  for (float gain : values.at("model.layers.1.input_layernorm.weight")) EXPECT_EQ(gain, 1);
  double sum = 0, squares = 0;
  const std::vector<float>& head = values.at("lm_head.weight");
  for (float w : head) {
    sum += w;
    squares += static_cast<double>(w) * w;
  }
  const auto n = static_cast<double>(head.size());
  EXPECT_LE(std::abs(sum / n), 5 * 0.02 / std::sqrt(n));                         // five standard errors of the mean
  EXPECT_LE(std::abs(std::sqrt(squares / n) / 0.02 - 1), 5 / std::sqrt(2 * n));  // and of the deviation
  std::set<float> distinct(head.begin(), head.end());
  EXPECT_GT(distinct.size(), head.size() / 2);
}

}  // namespace
}  // namespace keel
