#include "keel/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "keel/base/error.h"
#include "keel/model/parameters.h"

namespace keel {
namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw Error(ErrorKind::config, message, "model");
}

/// Sizes far beyond any model, chosen so that no product of them (elements of an activation, parameters) can overflow:
/// what is too large is told by the plan, not by a crash.
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
constexpr int64_t kWidest = int64_t{1} << 24;

void require_size(int64_t value, const char* name, int64_t largest) {
  require(value >= 1 && value <= largest, std::string(name) + " must be given, from 1 to " + std::to_string(largest) +
                                              ", not " + std::to_string(value));
}

void require_rope_scaling(const RopeScaling& s) {
  if (s.kind == RopeScaling::Kind::none) return;
  require(s.factor >= 1, "rope_scaling.factor must be 1 or more");
  if (s.kind == RopeScaling::Kind::linear) return;
  require(s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor,
          "rope_scaling needs 0 < low_freq_factor < high_freq_factor");
  require(s.original_max_position_embeddings >= 1, "rope_scaling.original_max_position_embeddings must be above 0");
}

/// Of the kind that norm_type chooses.
bool has_norms(const ModelConfig& c) {
  const std::vector<Wiring> rows = wiring_table(c);
  return final_norm_kind(c) != NormKind::none || std::any_of(rows.begin(), rows.end(), [](const Wiring& w) {
           return w.inner != NormKind::none || w.branch != NormKind::none || w.outer != NormKind::none;
         });
}

}  // namespace

ModelConfig resolved(ModelConfig c) {
  require_size(c.vocab_size, "vocab_size", kMostTokens);
  require_size(c.hidden_size, "hidden_size", kWidest);
  require_size(c.intermediate_size, "intermediate_size", kWidest);
  require_size(c.num_hidden_layers, "num_hidden_layers", kMostModelBlocks);
  require_size(c.num_attention_heads, "num_attention_heads", kWidest);
  if (c.num_key_value_heads == 0) c.num_key_value_heads = c.num_attention_heads;
  require_size(c.num_key_value_heads, "num_key_value_heads", kWidest);
  require(c.num_attention_heads % c.num_key_value_heads == 0,
          "num_attention_heads " + std::to_string(c.num_attention_heads) + " is no multiple of num_key_value_heads " +
              std::to_string(c.num_key_value_heads));
  if (c.head_dim == 0) {
    require(c.hidden_size % c.num_attention_heads == 0,
            "hidden_size " + std::to_string(c.hidden_size) + " is no multiple of num_attention_heads " +
                std::to_string(c.num_attention_heads) + " and head_dim is not given");
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  require_size(c.head_dim, "head_dim", kWidest);
  require_size(c.query_size(), "num_attention_heads * head_dim", kWidest);
  require(c.head_dim % 2 == 0, "head_dim " + std::to_string(c.head_dim) + " is odd: RoPE rotates pairs");
  const auto eps = static_cast<float>(c.rms_norm_eps);
  require(eps > 0 && std::isfinite(eps), "rms_norm_eps must be above 0 as a 32-bit number");
  require(c.rope_theta > 0, "rope_theta must be above 0");
  require(c.initializer_range >= 0, "initializer_range must not be negative");
  require(c.max_position_embeddings >= 0 && c.max_position_embeddings <= kMostTokens,
          "max_position_embeddings must be from 0 to " + std::to_string(kMostTokens));
  require_rope_scaling(c.rope_scaling);
  require(c.sliding_window >= 0, "sliding_window must not be negative");
  require(c.sliding_layers.empty() || static_cast<int64_t>(c.sliding_layers.size()) == c.num_hidden_layers,
          "layer_types has " + std::to_string(c.sliding_layers.size()) + " entries for " +
              std::to_string(c.num_hidden_layers) + " blocks");
  const ResidualScheme& scheme = residual_scheme(c.residual_scheme);
  try {
    require_applicable(scheme, c.wiring_overrides());
  } catch (const Error& error) {
    throw error.at("model");
  }
  require(!c.norm_type || has_norms(c), "norm_type " + std::string(to_string(c.norm_type.value_or(NormKind::none))) +
                                            " has no meaning in scheme '" + c.residual_scheme + "': it has no norms");
  return c;
}

std::vector<double> rope_frequencies(const ModelConfig& c) {
  const RopeScaling& scaling = c.rope_scaling;
  const double original = static_cast<double>(scaling.original_max_position_embeddings);
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < c.head_dim / 2; ++i) {
    const double f = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
    const double turns = original * f / (2 * std::numbers::pi);  // original / wavelength
    double scale = 1;
    if (scaling.kind == RopeScaling::Kind::linear || (scaling.kind == RopeScaling::Kind::llama3 && turns < low)) {
      scale = 1 / scaling.factor;
    } else if (scaling.kind == RopeScaling::Kind::llama3 && turns <= high) {
      const double s = (turns - low) / (high - low);
      scale = (1 - s) / scaling.factor + s;
    }
    frequencies.push_back(f * scale);
  }
  return frequencies;
}

std::vector<Wiring> wiring_table(const ModelConfig& config) {
  std::vector<Wiring> table;
  for (int64_t l = 0; l < config.sublayers(); ++l) {
    table.push_back(residual_wiring(config.residual_scheme, l, config.num_hidden_layers, config.wiring_overrides()));
  }
  return table;
}

NormKind final_norm_kind(const ModelConfig& config) {
  if (!config.has_final_norm()) return NormKind::none;
  const Wiring last = residual_wiring(config.residual_scheme, config.sublayers() - 1, config.num_hidden_layers,
                                      config.wiring_overrides());
  for (const NormKind kind : {last.outer, last.branch, last.inner}) {
    if (kind != NormKind::none) return kind;
  }
  return config.norm_type.value_or(NormKind::rms);
}

ParameterCount count_parameters(const ModelConfig& config) {
  const ParameterLayout layout = parameter_layout(config);
  ParameterCount count;
  for (const Parameter& parameter : layout.parameters) {
    count.total += parameter.size;
    if (parameter.is_matrix()) count.in_products += parameter.size;
  }
  if (!config.tie_word_embeddings) count.in_products -= layout.at(layout.embedding).size;
  return count;
}

}  // namespace keel
