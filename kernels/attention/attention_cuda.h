#pragma once

// CUDA code of attention.h, for arguments that attention.cpp has checked, as far as the host sees them.

#include <cstdint>

#include "keel/kernels/common/bf16.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

/// Rows [n, head, 0 .. head_dim) of a [N, heads, head_dim] tensor.
template <class T>
struct CudaHeadRows {
  T* data;
  int64_t row_stride, head_stride;
};

struct CudaAttentionSizes {
  int64_t sequences, tokens, heads, kv_heads, head_dim;
  const int32_t* cu_seqlens;  ///< [sequences + 1]
  float scale;
  int64_t window;  ///< 0: none; below 2^31
};

/// Paged keys and values; page_table null: flat ones.
struct CudaPages {
  const int32_t *page_table, *kv_lengths;
  int64_t page_table_stride, page_size;
  int64_t most_keys;  ///< that the pages of a sequence hold
};

template <class T>
struct CudaAttentionForward {
  CudaAttentionSizes sizes;
  CudaHeadRows<const T> q, k, v;
  CudaHeadRows<T> out;
  float* lse;  ///< [heads, tokens] or null
  CudaPages pages;
};

template <class T>
struct CudaAttentionBackward {
  CudaAttentionSizes sizes;
  CudaHeadRows<const T> d_out, q, k, v, out;
  CudaHeadRows<T> dq, dk, dv;
  const float* lse;  ///< [heads, tokens]
  float* delta;      ///< [heads, tokens]
};

KEEL_CUDA_FUNCTION(void, attention_forward, CudaQueue&, const CudaAttentionForward<float>&)
KEEL_CUDA_FUNCTION(void, attention_backward, CudaQueue&, const CudaAttentionBackward<float>&)

KEEL_CUDA_FUNCTION(void, attention_forward_bf16, CudaQueue&, const CudaAttentionForward<Bf16>&)
KEEL_CUDA_FUNCTION(void, attention_backward_bf16, CudaQueue&, const CudaAttentionBackward<Bf16>&)

}  // namespace keel
