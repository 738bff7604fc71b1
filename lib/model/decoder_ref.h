#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "keel/kernels/attention/attention_ref.h"
#include "keel/kernels/bias/bias_ref.h"
#include "keel/kernels/cross_entropy/cross_entropy_ref.h"
#include "keel/kernels/embedding/embedding_ref.h"
#include "keel/kernels/layer_norm/layer_norm_ref.h"
#include "keel/kernels/rms_norm/rms_norm_ref.h"
#include "keel/kernels/rope/rope_ref.h"
#include "keel/kernels/swiglu/swiglu_ref.h"
#include "keel/model/model_config.h"
#include "keel/model/parameters.h"

// The whole decoder as plain loops over the references of its operations, for any scalar: the summed loss as a function
// of the parameters. Its gradients follow by complex steps; nothing here knows how the decoder fuses or stores things.
namespace keel::reference {

struct DecoderBatch {
  std::vector<int32_t> tokens, targets, positions, cu_seqlens;
  std::vector<double> weights;
};

template <class S>
class DecoderLoss {
 public:
  /// parameters: the flat array of `layout`.
  DecoderLoss(const ModelConfig& config, const ParameterLayout& layout, const std::vector<S>& parameters,
              const DecoderBatch& batch)
      : config_(config), layout_(layout), parameters_(parameters), batch_(batch) {}

  /// sum_n weights[n] nll[n]
  S operator()() const {
    const std::vector<Wiring> wiring = wiring_table(config_);
    std::vector<S> x = embedding(batch_.tokens, tensor(layout_.embedding), config_.hidden_size);
    for (int64_t l = 0; l < config_.sublayers(); ++l) {
      const SublayerParameters& own = layout_.sublayers[l];
      std::vector<S> u = normed(x, own.inner_norm);
      for (S& value : u) value *= wiring[l].ns;
      u = scaled(u, own.in_scale);
      const std::vector<S> F = l % 2 == 0 ? attention_branch(own, l / 2, u) : mlp_branch(own, u);
      const std::vector<S> skip = scaled(x, own.skip_scale), f = scaled(normed(F, own.branch_norm), own.branch_scale);
      const S exponent = own.skip_exponent < 0 ? S(0) : tensor(own.skip_exponent)[0];
      const S a = S(wiring[l].a) * std::exp(exponent);
      for (size_t i = 0; i < x.size(); ++i) x[i] = a * skip[i] + S(wiring[l].b) * f[i];
      x = normed(x, own.outer_norm);
    }
    std::vector<S> nll;
    return cross_entropy<S>({.N = N(), .d = config_.hidden_size, .V = config_.vocab_size},
                            normed(x, layout_.final_norm), tensor(layout_.head), batch_.targets, batch_.weights, nll);
  }

 private:
  int64_t N() const { return static_cast<int64_t>(batch_.tokens.size()); }

  std::vector<S> tensor(int64_t index) const {
    const auto begin = parameters_.begin() + layout_.at(index).offset;
    return {begin, begin + layout_.at(index).size};
  }

  std::vector<S> normed(const std::vector<S>& x, int64_t gain) const {
    return gain < 0 ? x : rms_norm(x, tensor(gain), config_.rms_norm_eps).y;
  }

  std::vector<S> normed(const std::vector<S>& x, const NormParameters& norm) const {
    if (norm.bias < 0) return normed(x, norm.gain);
    return layer_norm(x, tensor(norm.gain), tensor(norm.bias), config_.rms_norm_eps).y;
  }

  /// By a vector of width d, or one scalar.
  std::vector<S> scaled(std::vector<S> x, int64_t scale) const {
    if (scale < 0) return x;
    const std::vector<S> s = tensor(scale);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= s[i % s.size()];
    return x;
  }

  /// y = x W^T, plus the bias if there is one
  std::vector<S> product(const std::vector<S>& x, int64_t weight, int64_t bias = -1) const {
    const int64_t out = layout_.at(weight).shape[0], in = layout_.at(weight).shape[1];
    const std::vector<S> W = tensor(weight);
    std::vector<S> y(N() * out);
    for (int64_t n = 0; n < N(); ++n) {
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t i = 0; i < in; ++i) y[n * out + o] += x[n * in + i] * W[o * in + i];
      }
    }
    return bias < 0 ? y : add_bias(y, tensor(bias));
  }

  std::vector<S> rotated(const std::vector<S>& x, int64_t heads) const {
    const int64_t half = config_.head_dim / 2;
    const std::vector<double> frequencies = rope_frequencies(config_);
    std::vector<double> cos, sin;
    for (int32_t position : batch_.positions) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = position * frequencies[i];
        cos.push_back(std::cos(angle));
        sin.push_back(std::sin(angle));
      }
    }
    return rope(x, cos, sin, heads, config_.head_dim, 1);
  }

  std::vector<S> attention_branch(const SublayerParameters& own, int64_t block, const std::vector<S>& u) const {
    const AttentionShape shape{.cu_seqlens = batch_.cu_seqlens,
                               .heads = config_.num_attention_heads,
                               .kv_heads = config_.num_key_value_heads,
                               .head_dim = config_.head_dim,
                               .scale = 1 / std::sqrt(static_cast<double>(config_.head_dim)),
                               .window = config_.window(block)};
    // A gain of size head_dim makes a row of every head, one of the full width a row of every token.
    const std::vector<S> q = normed(product(u, own.q_proj, own.q_bias), own.q_norm);
    const std::vector<S> k = normed(product(u, own.k_proj, own.k_bias), own.k_norm);
    const std::vector<S> v = normed(product(u, own.v_proj, own.v_bias), own.v_norm);
    std::vector<S> out, lse;
    attention(shape, rotated(q, shape.heads), rotated(k, shape.kv_heads), v, out, lse);
    return product(out, own.o_proj, own.o_bias);
  }

  std::vector<S> mlp_branch(const SublayerParameters& own, const std::vector<S>& u) const {
    return product(swiglu(product(u, own.gate_proj, own.gate_bias), product(u, own.up_proj, own.up_bias)),
                   own.down_proj, own.down_bias);
  }

  const ModelConfig& config_;
  const ParameterLayout& layout_;
  const std::vector<S>& parameters_;
  const DecoderBatch& batch_;
};

}  // namespace keel::reference
