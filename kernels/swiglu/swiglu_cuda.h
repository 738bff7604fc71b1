#pragma once

#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, swiglu, CudaQueue&, AnyView<const void, 2> gate, AnyView<const void, 2> up, AnyView<void, 2> h,
                   AnyView<void, 2> kept_gate, AnyView<void, 2> kept_up)
KEEL_CUDA_FUNCTION(void, swiglu_backward, CudaQueue&, AnyView<const void, 2> dh, AnyView<const void, 2> gate,
                   AnyView<const void, 2> up, AnyView<void, 2> d_gate, AnyView<void, 2> d_up, AnyView<void, 2> h)

}  // namespace keel
