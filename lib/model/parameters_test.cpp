#include "keel/model/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <map>
#include <set>

#include "keel/base/signals.h"

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

TEST(ParameterLayout, CountsByHand) {
  for (bool tied : {false, true}) {
    ModelConfig c = small("pre", tied);
    c.attention_bias = c.mlp_bias = c.qk_norm = tied;
    c.qkv_bias = !tied;
    const int64_t M = c.num_hidden_layers, d = c.hidden_size, F = c.intermediate_size;
    const int64_t q = c.query_size(), kv = c.key_value_size(), embedding = c.vocab_size * d;
    const int64_t matrices = M * d * (2 * q + 2 * kv + 3 * F) + embedding;
    const int64_t biases = M * (q + 2 * kv + (tied ? d + 2 * F + d + 2 * c.head_dim : 0));
    EXPECT_EQ(count_parameters(c).in_products, matrices);
    EXPECT_EQ(count_parameters(c).total, matrices + biases + (2 * M + 1) * d + (tied ? 0 : embedding));
  }
}

/// Vectors of width d, in units of d, and single numbers that a scheme has beside its matrices in 3 blocks.
TEST(ParameterLayout, EverySchemesVectors) {
  const std::map<std::string, int64_t> vectors{{"keel", 6 + 5},
                                               {"keel_v1", 6 + 4},
                                               {"keel_attempt1", 5},
                                               {"keel_attempt2", 5 + 6},
                                               {"keel_attempt3", 6 + 5 + 6},
                                               {"pre", 6 + 1},
                                               {"post", 6},
                                               {"deepnorm", 12},
                                               {"hybrid", 3 + 1},
                                               {"hybrid_star", 2 + 2 + 1},
                                               {"mix", 2 + 4 + 1},
                                               {"admin", 6 + 12},
                                               {"lns", 6 + 1},
                                               {"sandwich", 12 + 1},
                                               {"olmo2", 6 + 1},
                                               {"rezero", 0},
                                               {"layerscale", 6 + 6 + 1}};
  ASSERT_EQ(vectors.size(), residual_schemes().size());
  for (const auto& [scheme, count] : vectors) {
    ModelConfig config = small(scheme);
    config.num_hidden_layers = 3;
    int64_t found = 0, numbers = 0;
    for (const Parameter& p : parameter_layout(config).parameters) {
      const bool in_attention = p.name.find("self_attn") != std::string::npos;
      if (!p.is_matrix() && !in_attention) (p.size == 1 ? numbers : found) += p.size;
    }
    EXPECT_EQ(found, count * config.hidden_size) << scheme;
    EXPECT_EQ(numbers, scheme == "rezero" ? 3 : 0) << scheme;
  }
}

TEST(ParameterLayout, InitialFactorsOfSchemes) {
  const auto layout_of = [](const std::string& scheme, const InitRules& init) {
    ModelConfig config = small(scheme);
    config.num_hidden_layers = 8;
    return parameter_layout(config, init);
  };
  const auto std_of = [&](const std::string& scheme, const std::string& name, const InitRules& init = {}) {
    return find(layout_of(scheme, init), "model.layers.5." + name + ".weight")->initial_std /
           small("pre").initializer_range;
  };
  const double beta = std::pow(64, -0.25);
  for (const char* name : {"self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    EXPECT_DOUBLE_EQ(std_of("deepnorm", name), beta) << name;
    EXPECT_DOUBLE_EQ(std_of("deepnorm", name, {.plain = true}), 1) << name;
    EXPECT_DOUBLE_EQ(std_of("keel", name), 1) << name;
  }
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj"})
    EXPECT_DOUBLE_EQ(std_of("deepnorm", name), 1) << name;
  for (const char* scheme : {"hybrid", "hybrid_star"}) {
    EXPECT_DOUBLE_EQ(std_of(scheme, "self_attn.o_proj"), 0.25) << scheme;
    EXPECT_DOUBLE_EQ(std_of(scheme, "mlp.down_proj"), 0.25) << scheme;
    EXPECT_DOUBLE_EQ(std_of(scheme, "mlp.up_proj"), 1) << scheme;
  }
  const auto start_of = [&](const std::string& scheme, const std::string& name, const InitRules& init = {}) {
    return find(layout_of(scheme, init), "model.layers.5." + name)->initial_mean;
  };
  EXPECT_EQ(start_of("rezero", "residual_scale"), 0);
  EXPECT_EQ(start_of("layerscale", "feedforward_branch_scale"), 0.1);
  EXPECT_EQ(start_of("layerscale", "attention_branch_scale", {.layerscale = 1e-4}), 1e-4);
  EXPECT_EQ(residual_scheme("layerscale").init(24).branch_scale, 1e-5);
  EXPECT_EQ(residual_scheme("layerscale").init(36).branch_scale, 1e-6);
  EXPECT_EQ(start_of("keel_attempt2", "attention_input_scale"), 1);
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
  ThreadTeam team(threads);
  initialise_parameters(layout, seed, {&team, threads}, {weights.data(), {layout.size}});
  for (float w : weights) EXPECT_TRUE(std::isfinite(w)) << "gaps are zero";
  std::map<std::string, std::vector<float>> values;
  for (const Parameter& p : layout.parameters) {
    values[p.name] = {weights.begin() + p.offset, weights.begin() + p.offset + p.size};
  }
  return values;
}

TEST(InitialiseParameters, StopsForASignal) {
  const ParameterLayout layout = parameter_layout(small("keel"));
  std::vector<float> weights(layout.size);
  request_stop(SIGTERM);
  EXPECT_THROW(initialise_parameters(layout, 1, {}, {weights.data(), {layout.size}}), Stopped);
  clear_stop();
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
