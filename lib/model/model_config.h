#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/model/residual_wiring.h"

namespace keel {

/// The most blocks that a model may have.
inline constexpr int64_t kMostModelBlocks = 100'000;

/// How the frequencies of the rotary embedding are stretched for sequences beyond those of pre-training.
struct RopeScaling {
  enum class Kind { none, linear, llama3 } kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3 only
  int64_t original_max_position_embeddings = 0;      ///< llama3 only

  bool operator==(const RopeScaling&) const = default;
};

/// Shape and wiring of a decoder: Llama's (RoPE, grouped-query attention, SwiGLU, RMSNorm) with a choice of residual
/// scheme, and the options with which Mistral, Qwen2 and Qwen3 differ from it. Field names are Hugging Face's where it
/// has them. Sizes are 0 until given.
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
  RopeScaling rope_scaling;
  bool attention_bias = false;       ///< biases of the q, k, v and output projections (Llama's option)
  bool qkv_bias = false;             ///< biases of the q, k and v projections alone (Qwen2)
  bool mlp_bias = false;             ///< biases of the gate, up and down projections
  bool qk_norm = false;              ///< RMSNorm of every query and key head before RoPE, gains shared by heads (Qwen3)
  int64_t sliding_window = 0;        ///< position i attends to j with i - window < j <= i; 0: to all j <= i
  std::vector<bool> sliding_layers;  ///< [num_hidden_layers], the blocks that the window applies to; empty: all
  double initializer_range = 0.02;   ///< standard deviation of the initial matrices
  bool tie_word_embeddings = false;
  std::string residual_scheme = "keel";
  std::optional<double> residual_alpha;  ///< absent: the scheme's own
  bool learnable_alpha = false;          ///< the skip scale of full forms is alpha exp(s), s learned
  std::optional<double> mix_fraction;    ///< share of Post-LN blocks of scheme mix; absent: a quarter
  std::optional<NormKind> norm_type;     ///< rms or ln for every norm but those of q, k, v; absent: the scheme's own
  bool admin_frozen = false;             ///< the skip vectors of scheme admin are constants
  std::optional<bool> final_norm;        ///< absent: the scheme's default

  bool operator==(const ModelConfig&) const = default;

  int64_t sublayers() const { return 2 * num_hidden_layers; }
  int64_t query_size() const { return num_attention_heads * head_dim; }
  int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  bool has_qkv_bias() const { return attention_bias || qkv_bias; }
  /// The window of a block's attention; 0: none.
  int64_t window(int64_t block) const { return sliding_layers.empty() || sliding_layers[block] ? sliding_window : 0; }
  bool has_final_norm() const { return final_norm.value_or(keel::residual_scheme(residual_scheme).final_norm); }
  WiringOverrides wiring_overrides() const {
    return {.alpha = residual_alpha,
            .learnable_alpha = learnable_alpha,
            .mix_fraction = mix_fraction,
            .qk_norm = qk_norm,
            .frozen_skip = admin_frozen,
            .norm = norm_type};
  }
};

/// Fills in what is derived (key/value heads, head_dim) and checks the rest; throws Error(config) naming the field.
KEEL_API ModelConfig resolved(ModelConfig config);

/// Angular frequencies of the rotary embedding, [head_dim / 2], radians a position:  f_i = rope_theta^(-2i / head_dim),
/// then by rope_scaling
///   linear   f_i / factor
///   llama3   f_i if its wavelength 2 pi / f_i is below original / high_freq_factor, f_i / factor above original /
///            low_freq_factor, and between them  f_i ((1 - s) / factor + s),
///            s = (original / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
KEEL_API std::vector<double> rope_frequencies(const ModelConfig& config);

/// The wiring of every sublayer, in order.
KEEL_API std::vector<Wiring> wiring_table(const ModelConfig& config);

/// The kind of norm before the head: none, or as the last sublayer's norms are.
KEEL_API NormKind final_norm_kind(const ModelConfig& config);

/// Parameters of the model: all, and those that take part in matrix products (all matrices but an untied embedding).
struct ParameterCount {
  int64_t total = 0;
  int64_t in_products = 0;
};
KEEL_API ParameterCount count_parameters(const ModelConfig& config);

}  // namespace keel
