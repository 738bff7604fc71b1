#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/common/step_scalars.h"

namespace keel {

/// The part of cross_entropy between its matrix products, on the logits of some rows.
struct CudaCrossEntropyRows {
  View<const float, 2> logits;  ///< [rows, V]
  const int32_t* targets;       ///< [rows]
  const float* weights;         ///< [rows]
  float* nll;                   ///< [rows] or null
  int32_t* argmax;              ///< [rows] or null
  double* losses;               ///< [rows] or null: weight * nll
  AnyView<void, 2> gradient;    ///< [rows, V], of the logits; may be these.  null: not wanted
};
KEEL_CUDA_FUNCTION(void, cross_entropy_rows, CudaQueue&, const CudaCrossEntropyRows&)

/// Memory that the queue keeps for the losses of N rows.
inline int64_t row_losses_bytes(int64_t N) {
  return N * static_cast<int64_t>(sizeof(double));
}
KEEL_CUDA_FUNCTION(double*, row_losses, CudaQueue&, int64_t N)

/// loss_sum += sum of losses, weight_sum += sum of weights, in an order that N alone decides.
KEEL_CUDA_FUNCTION(void, cross_entropy_sums, CudaQueue&, const double* losses, const float* weights, int64_t N,
                   StepScalars* scalars)

}  // namespace keel
