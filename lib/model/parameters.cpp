#include "keel/model/parameters.h"

#include <iterator>

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
  int64_t gain(const std::string& name, int64_t size) {
    align();
    return append(name + ".weight", {size}, ParameterClass::norm, 1, 0);
  }
  NormParameters norm(NormKind kind, const std::string& name, int64_t size) {
    NormParameters parameters;
    if (kind != NormKind::none) parameters.gain = gain(name, size);
    if (kind == NormKind::ln) parameters.bias = bias(name + ".bias", size);
    return parameters;
  }
  int64_t scale(std::string name, int64_t size, double initial) {
    align();
    return append(std::move(name), {size}, ParameterClass::scalar, initial, 0);
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

/// Appends the parameters of one sublayer after another. The names are those of the architectures that have the tensor,
/// so post_attention_layernorm is the norm of attention's output where there is one, otherwise that of the feed-forward
/// network's input.
class SublayerBuilder {
 public:
  SublayerBuilder(const ModelConfig& config, const InitRules& init, ParameterLayout& layout, Builder& add)
      : c_(config),
        layout_(layout),
        add_(add),
        init_(residual_scheme(config.residual_scheme).init(config.num_hidden_layers)) {
    if (init.plain) init_ = {.branch_scale = init_.branch_scale};
    if (init.layerscale) init_.branch_scale = *init.layerscale;
  }

  void attention(int64_t block, const Wiring& wiring) {
    const std::string layer = name_of(block), own = layer + "self_attn.";
    const auto kind = ParameterClass::attention;
    const int64_t d = c_.hidden_size, q = c_.query_size(), kv = c_.key_value_size();
    const double std_dev = c_.initializer_range;
    SublayerParameters p;
    p.first = std::ssize(layout_.parameters);
    p.inner_norm = add_.norm(wiring.inner, layer + "input_layernorm", d);
    add_input_scale(wiring, layer + "attention", p);
    p.q_proj = add_.matrix(own + "q_proj.weight", q, d, kind, std_dev);
    p.k_proj = add_.matrix_below(own + "k_proj.weight", kv, d, kind, std_dev);
    p.v_proj = add_.matrix_below(own + "v_proj.weight", kv, d, kind, std_dev * init_.value);
    p.o_proj = add_.matrix(own + "o_proj.weight", d, q, kind, std_dev * init_.output);
    if (c_.has_qkv_bias()) {
      p.q_bias = add_.bias(own + "q_proj.bias", q);
      p.k_bias = add_.bias_below(own + "k_proj.bias", kv);
      p.v_bias = add_.bias_below(own + "v_proj.bias", kv);
    }
    if (c_.attention_bias) p.o_bias = add_.bias(own + "o_proj.bias", d);
    if (wiring.qkv != QkvNorm::none) {
      const bool full = wiring.qkv == QkvNorm::qk_full;
      p.q_norm = add_.gain(own + "q_norm", full ? q : c_.head_dim);
      p.k_norm = add_.gain(own + "k_norm", full ? kv : c_.head_dim);
    }
    if (wiring.qkv == QkvNorm::qkv_head) p.v_norm = add_.gain(own + "v_norm", c_.head_dim);
    p.branch_norm = add_.norm(wiring.branch, layer + "post_attention_layernorm", d);
    add_scales(wiring, layer, "attention", p);
    p.outer_norm = add_.norm(wiring.outer, layer + "outer_attention_layernorm", d);
    p.end = std::ssize(layout_.parameters);
    layout_.sublayers.push_back(p);
  }

  void mlp(int64_t block, const Wiring& wiring) {
    const std::string layer = name_of(block), own = layer + "mlp.";
    const auto kind = ParameterClass::mlp;
    const int64_t d = c_.hidden_size, F = c_.intermediate_size;
    const double std_dev = c_.initializer_range;
    SublayerParameters p;
    p.first = std::ssize(layout_.parameters);
    p.inner_norm = add_.norm(
        wiring.inner,
        layer + (wiring.branch == NormKind::none ? "post_attention_layernorm" : "pre_feedforward_layernorm"), d);
    add_input_scale(wiring, layer + "feedforward", p);
    p.gate_proj = add_.matrix(own + "gate_proj.weight", F, d, kind, std_dev * init_.mlp_input);
    p.up_proj = add_.matrix_below(own + "up_proj.weight", F, d, kind, std_dev * init_.mlp_input);
    p.down_proj = add_.matrix(own + "down_proj.weight", d, F, kind, std_dev * init_.output);
    if (c_.mlp_bias) {
      p.gate_bias = add_.bias(own + "gate_proj.bias", F);
      p.up_bias = add_.bias_below(own + "up_proj.bias", F);
      p.down_bias = add_.bias(own + "down_proj.bias", d);
    }
    p.branch_norm = add_.norm(wiring.branch, layer + "post_feedforward_layernorm", d);
    add_scales(wiring, layer, "feedforward", p);
    p.outer_norm = add_.norm(wiring.outer, layer + "outer_feedforward_layernorm", d);
    p.end = std::ssize(layout_.parameters);
    layout_.sublayers.push_back(p);
  }

 private:
  static std::string name_of(int64_t block) { return "model.layers." + std::to_string(block) + "."; }

  void add_input_scale(const Wiring& wiring, const std::string& name, SublayerParameters& p) {
    if (wiring.in_scale == LearnedScale::vector) p.in_scale = add_.scale(name + "_input_scale", c_.hidden_size, 1);
  }

  void add_scales(const Wiring& wiring, const std::string& layer, const std::string& branch, SublayerParameters& p) {
    if (wiring.skip_scale == LearnedScale::vector) {
      p.skip_scale = add_.scale(layer + branch + "_skip_scale", c_.hidden_size, 1);
      layout_.parameters.back().frozen = wiring.frozen_skip;
    }
    if (wiring.skip_scale == LearnedScale::exponential) {
      p.skip_exponent = add_.scale(layer + branch + "_skip_exponent", 1, 0);
    }
    if (wiring.branch_scale == LearnedScale::vector) {
      p.branch_scale = add_.scale(layer + branch + "_branch_scale", c_.hidden_size, init_.branch_scale);
    }
    if (wiring.branch_scale == LearnedScale::block) {
      const bool first = layout_.sublayers.size() % 2 == 0;
      p.branch_scale =
          first ? add_.scale(layer + "residual_scale", 1, init_.branch_scale) : layout_.sublayers.back().branch_scale;
    }
  }

  const ModelConfig& c_;
  ParameterLayout& layout_;
  Builder& add_;
  SchemeInit init_;
};

}  // namespace

std::array<std::pair<int64_t, int64_t>, 4> block_matrices(const ModelConfig& c) {
  const int64_t d = c.hidden_size, F = c.intermediate_size, q = c.query_size();
  return {{{q + 2 * c.key_value_size(), d}, {d, q}, {2 * F, d}, {d, F}}};
}

ParameterLayout parameter_layout(const ModelConfig& config, const InitRules& init) {
  ParameterLayout layout;
  Builder add(layout);
  layout.embedding = add.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size,
                                ParameterClass::embedding, config.initializer_range);
  const std::vector<Wiring> wiring = wiring_table(config);
  SublayerBuilder sublayers(config, init, layout, add);
  for (int64_t block = 0; block < config.num_hidden_layers; ++block) {
    sublayers.attention(block, wiring[2 * block]);
    sublayers.mlp(block, wiring[2 * block + 1]);
  }
  layout.final_norm = add.norm(final_norm_kind(config), "model.norm", config.hidden_size);
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
