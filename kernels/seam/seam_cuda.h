#pragma once

#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/seam/seam.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, seam_forward, CudaQueue&, const SeamForward& seam)
KEEL_CUDA_FUNCTION(void, seam_inner_again, CudaQueue&, View<const float, 2> y, const float* inner_gain,
                   float inner_factor, const float* inner_r, AnyView<void, 2> u)
/// At least one of Ds and Du is there; Du is there if inner_gain is.
KEEL_CUDA_FUNCTION(void, seam_backward, CudaQueue&, const SeamBackward& seam)

}  // namespace keel
