#pragma once

#include <cstdint>

namespace keel {

/// Classes of parameters that have their own learning rate, weight decay and eps.
enum class ParameterClass : int32_t { embedding, attention, mlp, norm, head, scalar };
inline constexpr int kParameterClasses = 6;

/// The numbers of one training step, in device memory: written and read by operations, fetched by the host once a step.
struct StepScalars {
  // Written by the host before the step.
  double learning_rate[kParameterClasses];  ///< of this step, by ParameterClass
  double bias_correction1;                  ///< 1 - beta1^t, t = updates including this one
  double bias_correction2;                  ///< 1 - beta2^t
  double clip;                              ///< limit of the gradient's 2-norm; infinity = off
  // Sums over the micro-batches of the step; zeroed before the first.
  double loss_sum;    ///< sum of weight * nll in nats
  double weight_sum;  ///< sum of the target tokens' weights
  // Written by grad_norm.
  double grad_norm;    ///< 2-norm of the mean gradient (sum / weight_sum), before clipping
  double grad_scale;   ///< what adamw multiplies gradients by: min(1, clip / (grad_norm + 1e-6)) / weight_sum
  int32_t non_finite;  ///< 1 if loss_sum or the gradient is not finite, or weight_sum is 0: adamw then changes nothing
};

}  // namespace keel
