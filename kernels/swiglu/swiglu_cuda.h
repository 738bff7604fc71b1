#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/bf16.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, swiglu, CudaQueue&, View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
                   View<float, 2> kept_gate, View<float, 2> kept_up)
/// The same with copies in bf16.
KEEL_CUDA_FUNCTION(void, swiglu_narrow, CudaQueue&, View<const float, 2> gate, View<const float, 2> up,
                   View<float, 2> h, View<Bf16, 2> kept_gate, View<Bf16, 2> kept_up)
KEEL_CUDA_FUNCTION(void, swiglu_backward, CudaQueue&, View<const float, 2> dh, View<const float, 2> gate,
                   View<const float, 2> up, View<float, 2> d_gate, View<float, 2> d_up, View<float, 2> h)

}  // namespace keel
