#pragma once

#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

/// embedding.h's for a vocabulary of V. What it keeps to put tokens in order is 16 bytes a token and some.
KEEL_CUDA_FUNCTION(void, embedding_backward, CudaQueue&, const int32_t* tokens, int64_t count,
                   AnyView<const void, 2> dy, int64_t V, int64_t d, float* d_table)

}  // namespace keel
