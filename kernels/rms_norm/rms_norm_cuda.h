#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

/// rms_norm_backward's arguments, [N, heads, d], checked.
struct RmsNormBackward {
  AnyView<const void, 3> dy, x;
  const float *w, *s;
  AnyView<void, 3> dx;
  bool accumulate_dx;
  float* dw;
  View<float, 2> partial;
  RowSums sums;
};

KEEL_CUDA_FUNCTION(void, rms_norm, CudaQueue&, const AnyView<const void, 3>& x, const float* w, float eps,
                   const AnyView<void, 3>& y, float* s)
KEEL_CUDA_FUNCTION(void, rms_norm_backward, CudaQueue&, const RmsNormBackward& norm)

}  // namespace keel
