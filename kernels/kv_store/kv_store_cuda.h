#pragma once

#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, kv_store, CudaQueue&, const AnyView<const void, 3>& x, const int32_t* rows,
                   const AnyView<void, 3>& cache)

}  // namespace keel
