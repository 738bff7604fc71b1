#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "keel/kernels/common/step_scalars.h"

namespace keel::reference {

/// Fills grad_norm, grad_scale and non_finite of `s`, adding in long double.
inline void grad_norm(const std::vector<float>& g, StepScalars& s) {
  long double squares = 0;
  for (float v : g) squares += static_cast<long double>(v) * v;
  s.grad_norm = static_cast<double>(std::sqrt(squares)) / s.weight_sum;
  s.grad_scale = std::min(1.0, s.clip / (s.grad_norm + 1e-6)) / s.weight_sum;
  s.non_finite = std::isfinite(squares) && std::isfinite(s.loss_sum) && s.weight_sum > 0 ? 0 : 1;
}

}  // namespace keel::reference
