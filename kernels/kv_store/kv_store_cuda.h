#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

KEEL_CUDA_FUNCTION(void, kv_store, CudaQueue&, const View<const float, 3>& x, const int32_t* rows,
                   const View<float, 3>& cache)

}  // namespace keel
