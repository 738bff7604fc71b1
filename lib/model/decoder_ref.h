#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
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
// of the parameters. Complex steps of it are exact derivatives, decoder_backward_ref.h has the chain rule; nothing here
// knows how the decoder fuses or stores things.
namespace keel::reference {

struct DecoderBatch {
  std::vector<int32_t> tokens, targets, positions, cu_seqlens;
  std::vector<double> weights;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
};

/// The steps of the forward pass. `parameters` is the flat array of `layout`; all arguments must outlive the model.
template <class S>
class Decoder {
 public:
  using Vector = std::vector<S>;  ///< a matrix with one row a token, dense

  /// `round`, if given, changes whatever a decoder keeps in DecoderOptions::compute.
  Decoder(const ModelConfig& config, const ParameterLayout& layout, const Vector& parameters, const DecoderBatch& batch,
          std::function<void(Vector&)> round = {})
      : config_(config),
        layout_(layout),
        parameters_(parameters),
        batch_(batch),
        round_(std::move(round)),
        wiring_(wiring_table(config)),
        frequencies_(rope_frequencies(config)) {}

  /// sum_n weights[n] nll[n]
  S loss() const {
    Vector x = embedded();
    for (int64_t l = 0; l < config_.sublayers(); ++l) x = sublayer(l, x).next;
    Vector nll;
    return cross_entropy<S>(head_shape(), head_input(x), tensor(layout_.head), batch_.targets, batch_.weights, nll);
  }

  /// Of the output head.
  Vector head_input(const Vector& x) const { return rounded(normed(x, layout_.final_norm)); }

  Vector embedded() const { return embedding(batch_.tokens, tensor(layout_.embedding), config_.hidden_size); }

  /// u = ns s_i N_in(x),   z = a s_x x + b s_f N_br(F(u)),   next = N_out(z)
  struct Sublayer {
    Vector inner, u, F, f, z, next;  ///< inner = ns N_in(x), f = N_br(F(u))
  };
  Sublayer sublayer(int64_t l, const Vector& x) const {
    const SublayerParameters& own = layout_.sublayers[l];
    Sublayer s;
    s.inner = normed(x, own.inner_norm);
    for (S& value : s.inner) value *= wiring_[l].ns;
    if (own.inner_norm.gain >= 0) s.inner = rounded(s.inner);
    s.u = rounded(scaled(s.inner, own.in_scale));
    s.F = l % 2 == 0 ? attention_sublayer(l, s.u).output : mlp_sublayer(l, s.u).output;
    s.f = own.branch_norm.gain < 0 ? s.F : rounded(normed(s.F, own.branch_norm));
    const Vector skip = scaled(x, own.skip_scale), branch = scaled(s.f, own.branch_scale);
    const S a = skip_factor(l), b = wiring_[l].b;
    for (size_t i = 0; i < x.size(); ++i) s.z.push_back(a * skip[i] + b * branch[i]);
    s.next = normed(s.z, own.outer_norm);
    return s;
  }

 protected:
  struct Attention {
    Vector q, k, v;  ///< projections
    Vector q_rotated, k_rotated, v_normed;
    Vector heads, output;  ///< of the attention itself, and behind the output projection
  };
  Attention attention_sublayer(int64_t l, const Vector& u) const {
    const SublayerParameters& own = layout_.sublayers[l];
    const AttentionShape shape = attention_shape(l);
    Attention a;
    a.q = rounded(product(u, own.q_proj, own.q_bias));
    a.k = rounded(product(u, own.k_proj, own.k_bias));
    a.v = rounded(product(u, own.v_proj, own.v_bias));
    // A gain of size head_dim makes a row of every head, one of the full width a row of every token.
    a.q_rotated = rounded(rotated(rounded(normed(a.q, {own.q_norm})), shape.heads, 1));
    a.k_rotated = rounded(rotated(rounded(normed(a.k, {own.k_norm})), shape.kv_heads, 1));
    a.v_normed = rounded(normed(a.v, {own.v_norm}));
    Vector lse;
    attention(shape, a.q_rotated, a.k_rotated, a.v_normed, a.heads, lse);
    a.heads = rounded(a.heads);
    a.output = rounded(product(a.heads, own.o_proj, own.o_bias));
    return a;
  }

  struct Mlp {
    Vector gate, up, hidden, output;
  };
  Mlp mlp_sublayer(int64_t l, const Vector& u) const {
    const SublayerParameters& own = layout_.sublayers[l];
    Mlp m{rounded(product(u, own.gate_proj, own.gate_bias)), rounded(product(u, own.up_proj, own.up_bias)), {}, {}};
    m.hidden = rounded(swiglu(m.gate, m.up));
    m.output = rounded(product(m.hidden, own.down_proj, own.down_bias));
    return m;
  }

  /// a, or a exp(s)
  S skip_factor(int64_t l) const {
    const int64_t exponent = layout_.sublayers[l].skip_exponent;
    return S(wiring_[l].a) * std::exp(exponent < 0 ? S(0) : tensor(exponent)[0]);
  }

  CrossEntropyShape head_shape() const { return {batch_.size(), config_.hidden_size, config_.vocab_size}; }
  AttentionShape attention_shape(int64_t l) const {
    return {.cu_seqlens = batch_.cu_seqlens,
            .heads = config_.num_attention_heads,
            .kv_heads = config_.num_key_value_heads,
            .head_dim = config_.head_dim,
            .scale = 1 / std::sqrt(static_cast<double>(config_.head_dim)),
            .window = config_.window(l / 2)};
  }

  Vector tensor(int64_t index) const {
    const auto begin = parameters_.begin() + layout_.at(index).offset;
    return {begin, begin + layout_.at(index).size};
  }

  Vector normed(const Vector& x, const NormParameters& norm) const {
    if (norm.gain < 0) return x;
    if (norm.bias < 0) return rms_norm(x, tensor(norm.gain), config_.rms_norm_eps).y;
    return layer_norm(x, tensor(norm.gain), tensor(norm.bias), config_.rms_norm_eps).y;
  }

  Vector rounded(Vector x) const {
    if (round_) round_(x);
    return x;
  }

  /// By a vector of width d, or one scalar.
  Vector scaled(Vector x, int64_t scale) const {
    if (scale < 0) return x;
    const Vector s = tensor(scale);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= s[i % s.size()];
    return x;
  }

  /// x W^T, plus the bias if there is one
  Vector product(const Vector& x, int64_t weight, int64_t bias) const {
    const int64_t out = layout_.at(weight).shape[0], in = layout_.at(weight).shape[1];
    const Vector W = tensor(weight);
    Vector y(batch_.size() * out);
    for (int64_t n = 0; n < batch_.size(); ++n) {
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t i = 0; i < in; ++i) y[n * out + o] += x[n * in + i] * W[o * in + i];
      }
    }
    return bias < 0 ? y : add_bias(y, tensor(bias));
  }

  /// By every token's position; sign -1: back.
  Vector rotated(const Vector& x, int64_t heads, double sign) const {
    std::vector<double> cos, sin;
    for (int32_t position : batch_.positions) {
      for (const double frequency : frequencies_) {
        cos.push_back(std::cos(position * frequency));
        sin.push_back(std::sin(position * frequency));
      }
    }
    return rope(x, cos, sin, heads, config_.head_dim, sign);
  }

  const ModelConfig& config_;
  const ParameterLayout& layout_;
  const Vector& parameters_;
  const DecoderBatch& batch_;
  std::function<void(Vector&)> round_;
  std::vector<Wiring> wiring_;
  std::vector<double> frequencies_;
};

}  // namespace keel::reference
