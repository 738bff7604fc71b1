#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "keel/kernels/rms_norm/rms_norm_ref.h"

namespace keel::reference {

/// The operands of a seam; a gain without elements stands for a norm that is absent.
template <class S>
struct Seam {
  int64_t rows, d;
  std::vector<S> x, F;
  S a, b;
  std::vector<S> outer_gain, inner_gain;
  double outer_eps, inner_eps;
};

template <class S>
struct SeamOutputs {
  std::vector<S> z, y, u, outer_r, inner_r;
};

/// The composed definition: a sum, a norm, another norm.
template <class S>
SeamOutputs<S> seam_forward(const Seam<S>& seam) {
  SeamOutputs<S> out;
  for (size_t i = 0; i < seam.x.size(); ++i) out.z.push_back(seam.a * seam.x[i] + seam.b * seam.F[i]);
  out.y = out.z;
  if (!seam.outer_gain.empty()) {
    auto norm = rms_norm(out.z, seam.outer_gain, seam.outer_eps);
    out.y = norm.y;
    out.outer_r = norm.s;
  }
  if (!seam.inner_gain.empty()) {
    auto norm = rms_norm(out.y, seam.inner_gain, seam.inner_eps);
    out.u = norm.y;
    out.inner_r = norm.s;
  }
  return out;
}

template <class S>
struct SeamGradients {
  std::vector<S> dx, dF, d_outer_gain, d_inner_gain;
  S d_a = 0, d_b = 0;
};

/// The chain rule through the composed definition, with the inverse roots that forward kept. Ds and Du: [rows, d];
/// without an inner norm both reach y.
template <class S>
SeamGradients<S> seam_backward(const Seam<S>& seam, const std::vector<S>& outer_r, const std::vector<S>& inner_r,
                               const std::vector<S>& Ds, const std::vector<S>& Du) {
  const int64_t d = seam.d;
  std::vector<S> z, y;
  for (int64_t i = 0; i < seam.rows * d; ++i) {
    z.push_back(seam.a * seam.x[i] + seam.b * seam.F[i]);
    y.push_back(seam.outer_gain.empty() ? z[i] : outer_r[i / d] * seam.outer_gain[i % d] * z[i]);
  }
  SeamGradients<S> result;
  std::vector<S> branch = Du;
  if (!seam.inner_gain.empty()) {
    auto inner = rms_norm_backward(Du, y, seam.inner_gain, inner_r);
    branch = inner.dx;
    result.d_inner_gain = inner.dw;
  }
  std::vector<S> dz;
  for (int64_t i = 0; i < seam.rows * d; ++i) dz.push_back(Ds[i] + branch[i]);
  if (!seam.outer_gain.empty()) {
    auto outer = rms_norm_backward(dz, z, seam.outer_gain, outer_r);
    dz = outer.dx;
    result.d_outer_gain = outer.dw;
  }
  for (int64_t i = 0; i < seam.rows * d; ++i) {
    result.dx.push_back(seam.a * dz[i]);
    result.dF.push_back(seam.b * dz[i]);
    result.d_a += dz[i] * seam.x[i];
    result.d_b += dz[i] * seam.F[i];
  }
  return result;
}

}  // namespace keel::reference
