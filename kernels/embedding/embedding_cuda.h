#pragma once

#include <cstdint>

#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

/// What embedding_backward keeps to put tokens in order, by digits: positions that a block takes, values of a digit, bytes.
inline constexpr int kTokenOrderTile = 512, kTokenOrderDigits = 512;
inline int64_t token_order_bytes(int64_t tokens) {
  return (4 * tokens + kTokenOrderDigits * chunk_count(tokens, kTokenOrderTile)) *
         static_cast<int64_t>(sizeof(int32_t));
}

/// embedding.h's for a vocabulary of V.
KEEL_CUDA_FUNCTION(void, embedding_backward, CudaQueue&, const int32_t* tokens, int64_t count,
                   AnyView<const void, 2> dy, int64_t V, int64_t d, float* d_table)

}  // namespace keel
