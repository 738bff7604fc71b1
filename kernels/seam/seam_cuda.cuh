#pragma once

// What the seam's kernels share. For seam_*_cuda.cu only. The names are those of docs/seam.md.

#include "keel/kernels/common/row_kernel.cuh"
#include "keel/kernels/seam/seam_cuda.h"

namespace keel {

enum class OuterNorm { none, rms, layer };

/// z = a s x + b t F; Branch is what F is made of.
template <class Branch>
struct SeamSum {
  Matrix<const float> x;
  Matrix<const Branch> F;
  const float *a, *b, *skip, *branch;
};

/// body(outer, inner), constants that say which norms there are.
template <class Seam, class Body>
void with_seam_norms(const Seam& seam, Body body) {
  using None = std::integral_constant<OuterNorm, OuterNorm::none>;
  using Rms = std::integral_constant<OuterNorm, OuterNorm::rms>;
  using Layer = std::integral_constant<OuterNorm, OuterNorm::layer>;
  const bool inner = static_cast<bool>(seam.inner_gain);
  if (seam.outer_bias) return body(Layer(), std::false_type());
  if (seam.outer_gain) return inner ? body(Rms(), std::true_type()) : body(Rms(), std::false_type());
  return inner ? body(None(), std::true_type()) : body(None(), std::false_type());
}

template <class... Views>
bool are_wide_vectors(const Views&... vectors) {
  return (... && is_aligned(vectors.data(), 16));
}

}  // namespace keel
