#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "keel/kernels/matmul/matmul_ref.h"
#include "keel/model/decoder_ref.h"

namespace keel::reference {

/// What the loss's gradient is at: every parameter (in the flat order of the layout; gaps 0, constants of the model not
/// left out), the streams x_0 .. x_n, and the sums z_0 .. z_{n-1} of skip and branch.
template <class S>
struct DecoderGradient {
  std::vector<S> parameters;
  std::vector<std::vector<S>> streams, sums;
  std::vector<std::vector<S>> states;  ///< not a gradient: x_0 .. x_n themselves
  std::vector<S> nll;                  ///< likewise, of each target
};

/// The chain rule through Decoder, one sublayer after the other, with the references' own backward passes. Of the
/// sublayer  z = a s_x x + b s_f N_br(F(ns s_i N_in(x))),  x' = N_out(z), with D = dLoss/dx':
///
///   dz = D through N_out          dF = b s_f dz through N_br
///   dx = a s_x dz + (ns s_i du through N_in),   du = dF through F
///
/// The forward pass keeps its streams; everything else is evaluated again, rounded anew where there is a `round`.
template <class S>
class DecoderBackward : private Decoder<S> {
 public:
  using Vector = std::vector<S>;

  DecoderBackward(const ModelConfig& config, const ParameterLayout& layout, const Vector& parameters,
                  const DecoderBatch& batch, std::function<void(Vector&)> round = {})
      : Decoder<S>(config, layout, parameters, batch, std::move(round)) {}

  DecoderGradient<S> operator()() {
    const int64_t n = config_.sublayers();
    result_ = {Vector(layout_.size), std::vector<Vector>(n + 1), std::vector<Vector>(n)};
    std::vector<Vector>& x = result_.states;
    x = {this->embedded()};
    for (int64_t l = 0; l < n; ++l) x.push_back(this->sublayer(l, x[l]).next);
    Vector D = head_backward(x[n]);
    for (int64_t l = n - 1; l >= 0; --l) {
      result_.streams[l + 1] = D;
      D = sublayer_backward(l, D, x[l]);
    }
    result_.streams[0] = D;
    add(layout_.embedding, embedding_backward(batch_.tokens, D, config_.vocab_size, config_.hidden_size));
    return result_;
  }

 private:
  Vector head_backward(const Vector& x) {
    Vector dx, dW(layout_.at(layout_.head).size);
    const Vector input = this->head_input(x);
    cross_entropy<S>(this->head_shape(), input, tensor(layout_.head), batch_.targets, batch_.weights, result_.nll);
    cross_entropy_backward<S>(this->head_shape(), input, tensor(layout_.head), batch_.targets, batch_.weights, dx, dW);
    add(layout_.head, dW);
    return norm_backward(this->rounded(dx), x, layout_.final_norm);
  }

  Vector sublayer_backward(int64_t l, const Vector& D, const Vector& x) {
    const SublayerParameters& own = layout_.sublayers[l];
    const auto s = this->sublayer(l, x);
    const Vector dz = norm_backward(D, s.z, own.outer_norm);
    result_.sums[l] = dz;
    const S a = this->skip_factor(l);
    const Vector d_skip = times(dz, a);
    if (own.skip_exponent >= 0) add(own.skip_exponent, {dot(d_skip, this->scaled(x, own.skip_scale))});
    Vector dx = scale_backward(d_skip, x, own.skip_scale);
    const Vector df = this->rounded(scale_backward(times(dz, S(this->wiring_[l].b)), s.f, own.branch_scale));
    const Vector dF = this->rounded(norm_backward(df, s.F, own.branch_norm));
    const Vector du = this->rounded(l % 2 == 0 ? attention_backward_of(l, dF, s.u) : mlp_backward_of(l, dF, s.u));
    const Vector d_inner = times(this->rounded(scale_backward(du, s.inner, own.in_scale)), S(this->wiring_[l].ns));
    accumulate(dx, norm_backward(d_inner, x, own.inner_norm));
    return dx;
  }

  Vector attention_backward_of(int64_t l, const Vector& dF, const Vector& u) {
    const SublayerParameters& own = layout_.sublayers[l];
    const AttentionShape shape = this->attention_shape(l);
    const auto a = this->attention_sublayer(l, u);
    const Vector d_heads = this->rounded(product_backward(dF, a.heads, own.o_proj, own.o_bias));
    Vector dq, dk, dv;
    attention_backward(shape, d_heads, a.q_rotated, a.k_rotated, a.v_normed, dq, dk, dv);
    const auto rotated_back = [&](const Vector& d, int64_t heads) {
      return this->rounded(this->rotated(this->rounded(d), heads, -1));
    };
    dq = this->rounded(norm_backward(rotated_back(dq, shape.heads), a.q, {own.q_norm}));
    dk = this->rounded(norm_backward(rotated_back(dk, shape.kv_heads), a.k, {own.k_norm}));
    dv = this->rounded(norm_backward(this->rounded(dv), a.v, {own.v_norm}));
    Vector du = product_backward(dq, u, own.q_proj, own.q_bias);
    accumulate(du, product_backward(dk, u, own.k_proj, own.k_bias));
    accumulate(du, product_backward(dv, u, own.v_proj, own.v_bias));
    return du;
  }

  Vector mlp_backward_of(int64_t l, const Vector& dF, const Vector& u) {
    const SublayerParameters& own = layout_.sublayers[l];
    const auto m = this->mlp_sublayer(l, u);
    const Vector dh = this->rounded(product_backward(dF, m.hidden, own.down_proj, own.down_bias));
    const auto d = swiglu_backward(dh, m.gate, m.up);
    Vector du = product_backward(this->rounded(d.d_gate), u, own.gate_proj, own.gate_bias);
    accumulate(du, product_backward(this->rounded(d.d_up), u, own.up_proj, own.up_bias));
    return du;
  }

  // The gradient of an operation's input from that of its output; its parameters' go to the result.

  Vector norm_backward(const Vector& dy, const Vector& x, const NormParameters& norm) {
    if (norm.gain < 0) return dy;
    const Vector gain = tensor(norm.gain);
    const double eps = config_.rms_norm_eps;
    if (norm.bias < 0) {
      const auto d = rms_norm_backward(dy, x, gain, rms_norm(x, gain, eps).s);
      add(norm.gain, d.dw);
      return d.dx;
    }
    const auto forward = layer_norm(x, gain, tensor(norm.bias), eps);
    const auto d = layer_norm_backward(dy, x, gain, forward.r, forward.mean);
    add(norm.gain, d.dw);
    add(norm.bias, d.dbias);
    return d.dx;
  }

  Vector scale_backward(const Vector& dy, const Vector& x, int64_t scale) {
    if (scale < 0) return dy;
    Vector ds(layout_.at(scale).size);
    for (size_t i = 0; i < x.size(); ++i) ds[i % ds.size()] += dy[i] * x[i];
    add(scale, ds);
    return this->scaled(dy, scale);
  }

  Vector product_backward(const Vector& dy, const Vector& x, int64_t weight, int64_t bias) {
    const int64_t out = layout_.at(weight).shape[0], in = layout_.at(weight).shape[1], N = batch_.size();
    const auto d = matmul_backward<S>({N, out, dy}, {N, in, x}, transposed<S>({out, in, tensor(weight)}));
    add(weight, transposed(d.dB).values);
    if (bias >= 0) add(bias, add_bias_backward(dy, out));
    return d.dA.values;
  }

  void add(int64_t index, const Vector& gradient) {
    for (size_t i = 0; i < gradient.size(); ++i) result_.parameters[layout_.at(index).offset + i] += gradient[i];
  }

  static void accumulate(Vector& sum, const Vector& term) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  }
  static Vector times(Vector x, S factor) {
    for (S& value : x) value *= factor;
    return x;
  }
  static S dot(const Vector& x, const Vector& y) {
    S sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    return sum;
  }

  using Decoder<S>::tensor;
  using Decoder<S>::config_;
  using Decoder<S>::layout_;
  using Decoder<S>::batch_;
  DecoderGradient<S> result_;
};

}  // namespace keel::reference
