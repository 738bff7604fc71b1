#pragma once

// CUDA code of attention.h, for arguments that attention.cpp has checked, as far as the host sees them.

#include <algorithm>
#include <cstdint>

#include "keel/kernels/common/bf16.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/common/operation_cost.h"

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

/// Sequences in pages with at most kCudaFewRows rows (queries times query heads of a kv head): the keys of each go to so
/// many blocks at most, in spans of so many at least, and what these leave waits in scratch, of so many sequences at a time.
inline constexpr int kCudaFewRows = 8, kCudaKeySplits = 16, kCudaLeastSpan = 256;
inline constexpr int64_t kCudaSequencesAtOnce = 128;

inline int cuda_key_splits(int64_t most_keys) {
  return static_cast<int>(std::clamp<int64_t>(chunk_count(most_keys, kCudaLeastSpan), 1, kCudaKeySplits));
}
/// Of each row the sums of a span and two numbers more.
inline int64_t cuda_few_rows_bytes(int64_t sequences, int64_t kv_heads, int64_t head_dim, int64_t most_keys) {
  return std::min(sequences, kCudaSequencesAtOnce) * kv_heads * cuda_key_splits(most_keys) * kCudaFewRows *
         (head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

/// Several blocks read a row of queries where it has more columns than this: a copy, as its output may take its place.
inline constexpr int64_t kCudaMostColumns = 256;
inline int64_t cuda_query_copy_bytes(int64_t tokens, int64_t heads, int64_t head_dim, int64_t element_bytes) {
  return head_dim > kCudaMostColumns ? tokens * heads * head_dim * element_bytes : 0;
}

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

/// What a pair of a query and a key that it sees, a query and a key count for, all heads together.
struct CudaAttentionTerms {
  double flops_of_pair = 0, bytes_of_query = 0, bytes_of_key = 0;
};
/// Adds what attention over these sequences has to do. kv_lengths null: as many keys as queries.
KEEL_CUDA_FUNCTION(void, attention_cost, CudaQueue&, const CudaAttentionSizes&, const int32_t* kv_lengths,
                   const CudaAttentionTerms&, OperationCost*)

KEEL_CUDA_FUNCTION(void, attention_forward, CudaQueue&, const CudaAttentionForward<float>&)
KEEL_CUDA_FUNCTION(void, attention_backward, CudaQueue&, const CudaAttentionBackward<float>&)

KEEL_CUDA_FUNCTION(void, attention_forward_bf16, CudaQueue&, const CudaAttentionForward<Bf16>&)
KEEL_CUDA_FUNCTION(void, attention_backward_bf16, CudaQueue&, const CudaAttentionBackward<Bf16>&)

}  // namespace keel
