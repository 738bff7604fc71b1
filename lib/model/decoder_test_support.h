#pragma once

// What the tests of the decoder and of its reference share: small models and their batches.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "keel/model/decoder.h"
#include "keel/model/decoder_ref.h"
#include "support/numeric.h"

namespace keel::decoder_testing {

/// A small model with parameters away from their initial values, a batch, and buffers for both.
struct Case {
  ModelConfig config;
  ParameterLayout layout;
  std::vector<float> weights, gradients, batch_weights;
  reference::DecoderBatch batch;
  ArenaPlan arena_plan;
  DecoderPlan plan;

  Case(ModelConfig c, std::vector<int32_t> cu_seqlens, uint64_t seed, bool masked = false, bool training = true,
       int64_t segment = 0, ElementType activations = ElementType::fp32, ElementType compute = ElementType::fp32)
      : config(resolved(c)), layout(parameter_layout(config)) {
    testing::Random random(seed);
    weights.assign(layout.size, 0);
    gradients.assign(layout.size, std::numeric_limits<float>::quiet_NaN());
    for (const Parameter& p : layout.parameters) {
      const bool is_offset = p.name.ends_with("bias") || p.name.ends_with("exponent");
      const double mean = p.is_matrix() || is_offset ? 0 : 1;
      const double std_dev =
          p.is_matrix() ? 0.75 / std::sqrt(static_cast<double>(p.shape[1])) : (is_offset ? 0.3 : 0.2);
      for (int64_t i = 0; i < p.size; ++i) {
        weights[p.offset + i] = static_cast<float>(mean + std_dev * random.normal());
      }
    }
    batch.cu_seqlens = std::move(cu_seqlens);
    for (size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
      for (int32_t n = batch.cu_seqlens[s]; n < batch.cu_seqlens[s + 1]; ++n) {
        batch.positions.push_back(n - batch.cu_seqlens[s]);
        batch.tokens.push_back(static_cast<int32_t>(random.integer(0, config.vocab_size - 1)));
        batch.targets.push_back(static_cast<int32_t>(random.integer(0, config.vocab_size - 1)));
        batch.weights.push_back(masked && random.uniform() < 0.4 ? 0 : 1);
      }
    }
    batch_weights.assign(batch.weights.begin(), batch.weights.end());
    const int64_t N = batch.cu_seqlens.back();
    plan = plan_decoder(config, all_sublayers(config),
                        {.max_tokens = N,
                         .max_positions = N,
                         .training = training,
                         .segment = segment,
                         .compute = compute,
                         .activations = activations},
                        arena_plan);
  }

  ParameterBuffers parameters() {
    return {
        .layout = &layout, .weights = {weights.data(), {layout.size}}, .gradients = {gradients.data(), {layout.size}}};
  }

  template <class T>
  static View<const T, 1> view(const std::vector<T>& v) {
    return {v.data(), {static_cast<int64_t>(v.size())}};
  }
  FlatBatch flat() const {
    return {.tokens = view(batch.tokens),
            .targets = view(batch.targets),
            .positions = view(batch.positions),
            .weights = view(batch_weights),
            .cu_seqlens = view(batch.cu_seqlens)};
  }
};

inline ModelConfig small(const std::string& scheme) {
  return {.vocab_size = 11,
          .hidden_size = 6,
          .intermediate_size = 5,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .num_key_value_heads = 1,
          .head_dim = 4,
          .residual_scheme = scheme};
}

}  // namespace keel::decoder_testing
