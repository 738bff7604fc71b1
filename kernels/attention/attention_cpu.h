#pragma once

// CPU code of attention.h, for arguments that attention.cpp has checked.

#include <cstdint>

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

/// Rows [n, head, 0 .. head_dim) of a [N, heads, head_dim] tensor.
template <class T>
struct HeadRows {
  T* data;
  int64_t row_stride, head_stride;

  [[gnu::always_inline]] T* operator()(int64_t n, int64_t head) const {
    return data + n * row_stride + head * head_stride;
  }
};

struct AttentionSizes {
  int64_t sequences, tokens, heads, kv_heads, head_dim;
  const int32_t* cu_seqlens;  ///< [sequences + 1]
  float scale;
  int64_t window;  ///< 0: none; below 2^31
  Threads threads;
  float* scratch;          ///< 64-byte aligned
  int64_t scratch_floats;  ///< of each thread, a multiple of 16

  /// Tokens of the sequences.
  [[gnu::always_inline]] int64_t attending() const { return cu_seqlens[sequences] - cu_seqlens[0]; }
};

struct AttentionForward {
  AttentionSizes sizes;
  HeadRows<const float> q, k, v;
  HeadRows<float> out;
  float* lse;  ///< [heads, tokens] or null
  // Paged keys and values; null: flat.
  const int32_t* page_table;
  const int32_t* kv_lengths;
  int64_t page_table_stride, page_size;
};

struct AttentionBackward {
  AttentionSizes sizes;
  HeadRows<const float> d_out, q, k, v, out;
  HeadRows<float> dq, dk, dv;
  const float* lse;  ///< [heads, tokens]
  float* delta;      ///< [heads, tokens]
};

/// Scratch floats that one thread needs.
KEEL_DECLARE_ISA(int64_t attention_forward_scratch(int64_t head_dim))
KEEL_DECLARE_ISA(int64_t attention_backward_scratch(int64_t head_dim))

KEEL_DECLARE_ISA(void attention_forward(const AttentionForward&))
KEEL_DECLARE_ISA(void attention_backward(const AttentionBackward&))

}  // namespace keel
