#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "keel/kernels/adamw/adamw.h"

namespace keel::reference {

/// One step in the precision of S.
template <class S>
void adamw(std::span<const AdamwSegment> segments, double beta1, double beta2, const StepScalars& scalars,
           const std::vector<S>& gradient, std::vector<S>& w, std::vector<S>& m, std::vector<S>& v) {
  using std::sqrt;
  if (scalars.non_finite != 0) return;
  for (const AdamwSegment& segment : segments) {
    const S lr = scalars.learning_rate[static_cast<int>(segment.parameter_class)];
    for (int64_t i = segment.offset; i < segment.offset + segment.size; ++i) {
      const S g = scalars.grad_scale * gradient[i];
      w[i] = w[i] - lr * segment.weight_decay * w[i];
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      w[i] = w[i] - lr * (m[i] / scalars.bias_correction1) / (sqrt(v[i] / scalars.bias_correction2) + segment.eps);
    }
  }
}

}  // namespace keel::reference
