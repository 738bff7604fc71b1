#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "keel/kernels/layer_norm/layer_norm_ref.h"
#include "keel/kernels/rms_norm/rms_norm_ref.h"

namespace keel::reference {

/// The operands of a seam; a vector without elements stands for a norm, bias or scale that is absent.
template <class S>
struct Seam {
  int64_t rows, d;
  std::vector<S> x, F;
  S a, b;
  std::vector<S> outer_gain, inner_gain;
  double outer_eps, inner_eps;
  std::vector<S> outer_bias = {}, skip_scale = {}, branch_scale = {};
  double inner_factor = 1;

  S skip(int64_t c) const { return skip_scale.empty() ? S(1) : skip_scale[c]; }
  S branch(int64_t c) const { return branch_scale.empty() ? S(1) : branch_scale[c]; }
  std::vector<S> sum() const {
    std::vector<S> z;
    for (int64_t i = 0; i < rows * d; ++i) z.push_back(a * skip(i % d) * x[i] + b * branch(i % d) * F[i]);
    return z;
  }
};

template <class S>
struct SeamOutputs {
  std::vector<S> z, y, u, outer_r, inner_r, outer_mean;
};

/// The composed definition: a sum, a norm, another norm.
template <class S>
SeamOutputs<S> seam_forward(const Seam<S>& seam) {
  SeamOutputs<S> out;
  out.z = seam.sum();
  out.y = out.z;
  if (!seam.outer_bias.empty()) {
    auto norm = layer_norm(out.z, seam.outer_gain, seam.outer_bias, seam.outer_eps);
    out.y = norm.y;
    out.outer_r = norm.r;
    out.outer_mean = norm.mean;
  } else if (!seam.outer_gain.empty()) {
    auto norm = rms_norm(out.z, seam.outer_gain, seam.outer_eps);
    out.y = norm.y;
    out.outer_r = norm.s;
  }
  if (!seam.inner_gain.empty()) {
    auto norm = rms_norm(out.y, seam.inner_gain, seam.inner_eps);
    for (const S& value : norm.y) out.u.push_back(S(seam.inner_factor) * value);
    out.inner_r = norm.s;
  }
  return out;
}

template <class S>
struct SeamGradients {
  std::vector<S> dx, dF, d_outer_gain, d_inner_gain, d_outer_bias, d_skip_scale, d_branch_scale;
  S d_a = 0, d_b = 0;
};

/// What forward kept for backward.
template <class S>
struct SeamSaved {
  std::vector<S> outer_r, inner_r, outer_mean;
};

/// The chain rule through the composed definition, with what forward kept. Ds and Du: [rows, d]; without an inner norm
/// both reach y.
template <class S>
SeamGradients<S> seam_backward(const Seam<S>& seam, const SeamSaved<S>& saved, const std::vector<S>& Ds,
                               const std::vector<S>& Du) {
  const int64_t d = seam.d;
  const bool is_layer_norm = !seam.outer_bias.empty();
  const std::vector<S> z = seam.sum();
  std::vector<S> y = z;
  if (!seam.outer_gain.empty() && !is_layer_norm) {
    for (int64_t i = 0; i < seam.rows * d; ++i) y[i] = saved.outer_r[i / d] * seam.outer_gain[i % d] * z[i];
  }
  SeamGradients<S> result;
  std::vector<S> branch = Du;
  if (!seam.inner_gain.empty()) {
    for (S& value : branch) value = S(seam.inner_factor) * value;
    auto inner = rms_norm_backward(branch, y, seam.inner_gain, saved.inner_r);
    branch = inner.dx;
    result.d_inner_gain = inner.dw;
  }
  std::vector<S> dz;
  for (int64_t i = 0; i < seam.rows * d; ++i) dz.push_back(Ds[i] + branch[i]);
  if (is_layer_norm) {
    auto outer = layer_norm_backward(dz, z, seam.outer_gain, saved.outer_r, saved.outer_mean);
    dz = outer.dx;
    result.d_outer_gain = outer.dw;
    result.d_outer_bias = outer.dbias;
  } else if (!seam.outer_gain.empty()) {
    auto outer = rms_norm_backward(dz, z, seam.outer_gain, saved.outer_r);
    dz = outer.dx;
    result.d_outer_gain = outer.dw;
  }
  if (!seam.skip_scale.empty()) result.d_skip_scale.assign(d, S(0));
  if (!seam.branch_scale.empty()) result.d_branch_scale.assign(d, S(0));
  for (int64_t i = 0; i < seam.rows * d; ++i) {
    const int64_t c = i % d;
    result.dx.push_back(seam.a * seam.skip(c) * dz[i]);
    result.dF.push_back(seam.b * seam.branch(c) * dz[i]);
    result.d_a += dz[i] * seam.skip(c) * seam.x[i];
    result.d_b += dz[i] * seam.branch(c) * seam.F[i];
    if (!seam.skip_scale.empty()) result.d_skip_scale[c] += seam.a * dz[i] * seam.x[i];
    if (!seam.branch_scale.empty()) result.d_branch_scale[c] += seam.b * dz[i] * seam.F[i];
  }
  return result;
}

}  // namespace keel::reference
