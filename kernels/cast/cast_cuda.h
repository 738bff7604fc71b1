#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/bf16.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, narrow, CudaQueue&, View<const float, 2> from, View<Bf16, 2> to)
KEEL_CUDA_FUNCTION(void, widen, CudaQueue&, View<const Bf16, 2> from, View<float, 2> to)

}  // namespace keel
