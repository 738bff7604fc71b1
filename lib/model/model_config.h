#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/model/residual_wiring.h"

namespace keel {

/// Shape and wiring of a decoder: Llama's (RoPE, grouped-query attention, SwiGLU, RMSNorm, no biases) with a choice of
/// residual scheme. Field names are Hugging Face's. Sizes are 0 until given.
struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;        ///< d, width of the stream
  int64_t intermediate_size = 0;  ///< F, width of the feed-forward network
  int64_t num_hidden_layers = 0;  ///< M blocks = 2M sublayers
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;      ///< 0: as many as attention heads
  int64_t head_dim = 0;                 ///< 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 0;  ///< 0: the sequence length it is trained at
  double rms_norm_eps = 1e-5;           ///< of every norm
  double rope_theta = 1e4;
  double initializer_range = 0.02;  ///< standard deviation of the initial matrices
  bool tie_word_embeddings = false;
  std::string residual_scheme = "keel";
  std::optional<double> residual_alpha;  ///< absent: the scheme's own
  std::optional<bool> final_norm;        ///< absent: the scheme's default

  bool operator==(const ModelConfig&) const = default;

  int64_t sublayers() const { return 2 * num_hidden_layers; }
  int64_t query_size() const { return num_attention_heads * head_dim; }
  int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  bool has_final_norm() const { return final_norm.value_or(keel::residual_scheme(residual_scheme).final_norm); }
};

/// Fills in what is derived (key/value heads, head_dim) and checks the rest; throws Error(config) naming the field.
KEEL_API ModelConfig resolved(ModelConfig config);

/// The wiring of every sublayer, in order.
KEEL_API std::vector<Wiring> wiring_table(const ModelConfig& config);

/// Parameters of the model: all, and those that take part in matrix products (all matrices but an untied embedding).
struct ParameterCount {
  int64_t total = 0;
  int64_t in_products = 0;
};
KEEL_API ParameterCount count_parameters(const ModelConfig& config);

/// Floating-point operations of one token's training step (forward and backward, multiply and add counted apart): six
/// for every parameter in a product, and the causal attention products at this sequence length; recomputation not
/// counted.
KEEL_API double train_flops_per_token(const ModelConfig& config, int64_t sequence_length);

}  // namespace keel
