#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

/// The arguments of layer_norm.h, checked.
struct LayerNormForward {
  AnyView<const void, 2> x;
  const float *w, *bias;
  float factor, eps;
  AnyView<void, 2> y;
  float *r, *mean;
};
struct LayerNormBackward {
  AnyView<const void, 2> dy, x;
  const float *w, *r, *mean;
  float factor;
  AnyView<void, 2> dx;
  bool accumulate_dx;
  float *dw, *dbias;
  View<float, 2> partial;
  RowSums sums;
};

KEEL_CUDA_FUNCTION(void, layer_norm, CudaQueue&, const LayerNormForward& norm)
KEEL_CUDA_FUNCTION(void, layer_norm_backward, CudaQueue&, const LayerNormBackward& norm)

}  // namespace keel
