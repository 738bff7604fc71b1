#include "keel/model/parameters.h"

namespace keel {
namespace {

constexpr int64_t kAlignment = 16;  // floats: one cache line

/// Appends parameters in flat order.
class Builder {
 public:
  explicit Builder(ParameterLayout& layout) : layout_(layout) {}

  int64_t matrix(std::string name, int64_t out, int64_t in, ParameterClass parameter_class, double std_dev) {
    align();
    return append(std::move(name), {out, in}, parameter_class, 0, std_dev);
  }
  /// A matrix whose rows continue those of the one before.
  int64_t matrix_below(std::string name, int64_t out, int64_t in, ParameterClass parameter_class, double std_dev) {
    return append(std::move(name), {out, in}, parameter_class, 0, std_dev);
  }
  int64_t gain(std::string name, int64_t size) {
    align();
    return append(std::move(name) + ".weight", {size}, ParameterClass::norm, 1, 0);
  }
  int64_t bias(std::string name, int64_t size) {
    align();
    return append(std::move(name), {size}, ParameterClass::scalar, 0, 0);
  }
  /// A bias that continues the one before.
  int64_t bias_below(std::string name, int64_t size) {
    return append(std::move(name), {size}, ParameterClass::scalar, 0, 0);
  }
  void align() { layout_.size = (layout_.size + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  int64_t append(std::string name, std::vector<int64_t> shape, ParameterClass parameter_class, double mean,
                 double std_dev) {
    int64_t size = 1;
    for (int64_t extent : shape) size *= extent;
    layout_.parameters.push_back({.name = std::move(name),
                                  .shape = std::move(shape),
                                  .parameter_class = parameter_class,
                                  .offset = layout_.size,
                                  .size = size,
                                  .initial_mean = mean,
                                  .initial_std = std_dev});
    layout_.size += size;
    return static_cast<int64_t>(layout_.parameters.size()) - 1;
  }

  ParameterLayout& layout_;
};

SublayerParameters attention_parameters(const ModelConfig& c, const Wiring& wiring, const std::string& block,
                                        Builder& add) {
  SublayerParameters p;
  const std::string attention = block + "self_attn.";
  const int64_t d = c.hidden_size;
  const auto kind = ParameterClass::attention;
  if (wiring.inner != NormKind::none) p.inner_norm = add.gain(block + "input_layernorm", d);
  p.q_proj = add.matrix(attention + "q_proj.weight", c.query_size(), d, kind, c.initializer_range);
  p.k_proj = add.matrix_below(attention + "k_proj.weight", c.key_value_size(), d, kind, c.initializer_range);
  p.v_proj = add.matrix_below(attention + "v_proj.weight", c.key_value_size(), d, kind, c.initializer_range);
  p.o_proj = add.matrix(attention + "o_proj.weight", d, c.query_size(), kind, c.initializer_range);
  if (c.has_qkv_bias()) {
    p.q_bias = add.bias(attention + "q_proj.bias", c.query_size());
    p.k_bias = add.bias_below(attention + "k_proj.bias", c.key_value_size());
    p.v_bias = add.bias_below(attention + "v_proj.bias", c.key_value_size());
  }
  if (c.attention_bias) p.o_bias = add.bias(attention + "o_proj.bias", d);
  if (c.qk_norm) {
    p.q_norm = add.gain(attention + "q_norm", c.head_dim);
    p.k_norm = add.gain(attention + "k_norm", c.head_dim);
  }
  if (wiring.outer != NormKind::none) p.outer_norm = add.gain(block + "outer_attention_layernorm", d);
  return p;
}

SublayerParameters mlp_parameters(const ModelConfig& c, const Wiring& wiring, const std::string& block, Builder& add) {
  SublayerParameters p;
  const std::string mlp = block + "mlp.";
  const int64_t d = c.hidden_size;
  const int64_t F = c.intermediate_size;
  const auto kind = ParameterClass::mlp;
  if (wiring.inner != NormKind::none) p.inner_norm = add.gain(block + "post_attention_layernorm", d);
  p.gate_proj = add.matrix(mlp + "gate_proj.weight", F, d, kind, c.initializer_range);
  p.up_proj = add.matrix_below(mlp + "up_proj.weight", F, d, kind, c.initializer_range);
  p.down_proj = add.matrix(mlp + "down_proj.weight", d, F, kind, c.initializer_range);
  if (c.mlp_bias) {
    p.gate_bias = add.bias(mlp + "gate_proj.bias", F);
    p.up_bias = add.bias_below(mlp + "up_proj.bias", F);
    p.down_bias = add.bias(mlp + "down_proj.bias", d);
  }
  if (wiring.outer != NormKind::none) p.outer_norm = add.gain(block + "outer_feedforward_layernorm", d);
  return p;
}

}  // namespace

ParameterLayout parameter_layout(const ModelConfig& config) {
  ParameterLayout layout;
  Builder add(layout);
  layout.embedding = add.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size,
                                ParameterClass::embedding, config.initializer_range);
  const std::vector<Wiring> wiring = wiring_table(config);
  for (int64_t l = 0; l < config.sublayers(); ++l) {
    const std::string block = "model.layers." + std::to_string(l / 2) + ".";
    layout.sublayers.push_back(l % 2 == 0 ? attention_parameters(config, wiring[l], block, add)
                                          : mlp_parameters(config, wiring[l], block, add));
  }
  if (config.has_final_norm()) layout.final_norm = add.gain("model.norm", config.hidden_size);
  layout.head = config.tie_word_embeddings ? layout.embedding
                                           : add.matrix("lm_head.weight", config.vocab_size, config.hidden_size,
                                                        ParameterClass::head, config.initializer_range);
  add.align();
  return layout;
}

const char* to_string(ParameterClass parameter_class) {
  switch (parameter_class) {
    case ParameterClass::embedding:
      return "embedding";
    case ParameterClass::attention:
      return "attention";
    case ParameterClass::mlp:
      return "mlp";
    case ParameterClass::norm:
      return "norm";
    case ParameterClass::head:
      return "head";
    case ParameterClass::scalar:
      return "scalar";
  }
  return "?";
}

}  // namespace keel
