#pragma once

#include <span>

#include "keel/base/view.h"
#include "keel/kernels/common/bf16.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_memory.h"
#include "keel/kernels/common/step_scalars.h"

namespace keel {

/// A run of elements [offset, offset + size) of the flat parameter array that share their settings.
struct AdamwSegment {
  int64_t offset = 0, size = 0;
  ParameterClass parameter_class = ParameterClass::scalar;  ///< picks learning_rate
  float weight_decay = 0;                                   ///< 0 where decay does not apply
  float eps = 1e-8F;
  bool operator==(const AdamwSegment&) const = default;
};

/// One AdamW step on all segments (Loshchilov & Hutter 2019, arXiv:1711.05101), element by element:
///   g  = grad_scale * gradient[i]                        clipping and the division by the number of target tokens
///   w -= lr weight_decay w                               decay first
///   m  = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
///   w -= lr (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)
/// lr, the corrections and grad_scale come from `scalars` in device memory; with non_finite set nothing changes.
/// w, gradient, m, v: [P].  Segments do not overlap; elements outside all of them are left alone.
/// compute: [P], w rounded to the nearest bf16, written with it; null: not wanted. On a GPU only.
KEEL_API void adamw(Context&, std::span<const AdamwSegment> segments, double beta1, double beta2,
                    View<const StepScalars, 1> scalars, View<const float, 1> gradient, View<float, 1> w,
                    View<float, 1> m, View<float, 1> v, View<Bf16, 1> compute = {});
/// With these segments; only their sizes matter.
KEEL_API void expect_adamw(OperationMemory&, std::span<const AdamwSegment> segments);

}  // namespace keel
