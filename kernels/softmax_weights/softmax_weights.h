#pragma once

#include <cstdint>

#include "keel/base/export.h"
#include "keel/base/view.h"
#include "keel/kernels/common/isa.h"

namespace keel {

// What drawing a token does with a row of logits z, on the calling thread.

struct LargestLogit {
  bool all_finite = true;  ///< if not, the rest means nothing
  float value = 0;
  int32_t id = 0;  ///< of equal ones the lowest
};
/// z: [V] dense, V > 0.
KEEL_API LargestLogit largest_logit(Isa isa, HostView<const float, 1> z);

/// Weights that softmax_weights adds up before the sums are.
inline constexpr int64_t kWeightsOfASum = 128;

/// w[i] = exp((z[i] - largest) inverse_temperature), relative to the probabilities of softmax(z inverse_temperature):
/// the exponent in double, rounded to fp32, its exponential to within 2 ulp; 0 below e^-104.
/// sums[b] = sum over block b of kWeightsOfASum of w, in fp32.
/// z: [V] finite.  w: [V].  sums: [ceil(V / kWeightsOfASum)].  All dense; w may be z. Error(shape) on extents that disagree.
KEEL_API void softmax_weights(Isa isa, HostView<const float, 1> z, float largest, double inverse_temperature,
                              HostView<float, 1> w, HostView<float, 1> sums);

}  // namespace keel
