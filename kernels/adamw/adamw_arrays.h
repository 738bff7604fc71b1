#pragma once

#include "keel/kernels/adamw/adamw.h"

namespace keel {

/// The arrays of adamw.
struct AdamwArrays {
  const float* gradient;
  float *w, *m, *v;
  Bf16* compute;  ///< or null
};

/// What the formula needs of one segment: combined in double, then rounded once.
struct AdamwCoefficients {
  float grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step;  ///< lr / bias_correction1
  float inv_correction2;
  float eps;
};

}  // namespace keel
