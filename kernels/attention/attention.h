#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_memory.h"

namespace keel {

/// Keys and values of a flat batch of S sequences, in one of two layouts.
///   flat:   sequence s owns rows cu_seqlens[s] .. cu_seqlens[s+1]-1 of `keys` and `values`, the same rows as its
///           queries.
///   paged:  the cache is cut into pages of page_size rows; token t of sequence s is row
///           page_table(s, t / page_size) * page_size + t % page_size, for t < kv_lengths[s]. The queries of s are its
///           last cu_seqlens[s+1] - cu_seqlens[s] tokens.
struct KeysValues {
  AnyView<const void, 3> keys, values;  ///< [rows, kv_heads, head_dim], last axis contiguous, rows may be strided
  View<const int32_t, 2> page_table;    ///< [S, pages per sequence]; null: flat
  View<const int32_t, 1> kv_lengths;    ///< [S]; null: flat
  int64_t page_size = 0;
};

/// Causal attention, exact softmax computed tile by tile (flash style: never a [T, T] buffer).
///                                                                                       Dao 2023, arXiv:2307.08691
///   out[n,h,:] = sum_j p_j v[j, h / (heads / kv_heads), :]
///   lse[h,n]   = log sum_j exp(s_j),   kept for the backward pass
/// with p = softmax(s), s_j = scale * q[n,h,:] . k[j, h / (heads / kv_heads), :], over the keys j of the same sequence
/// at or before n and, with window > 0, after n - window.
///
/// q, out: [N, heads, head_dim], last axis contiguous, rows may be strided; out may be q (each query tile is read
/// before it is written).  cu_seqlens: [S + 1], ascending within 0 .. N; empty sequences are allowed, and rows before the
/// first and after the last sequence are neither read nor written.  lse: [heads, N] dense, or null.  heads is a multiple
/// of kv_heads; head_dim is any positive number (multiples of 8 are fast).
/// On a GPU q, keys, values and out may be bf16, all of them; scores, softmax and sums are fp32 always. Where head_dim is
/// a multiple of 8, at most 256, and all rows begin on 16 bytes, products then run on tensor cores, as of 32, 64, 96, 128
/// or 256 columns (gradients of 256 where a block may have 133 KiB of shared memory): p and dS are rounded to bf16 for
/// them, and what is not finite in a row that a query does not see may reach it.
/// Masking is by exclusion, so a row never sees -10000.  Throws Error(shape) on extents that disagree and, on a CPU, on
/// what cu_seqlens, kv_lengths and the page table hold; on a GPU, whose memory the host does not read, these are trusted.
KEEL_API void attention(Context&, AnyView<const void, 3> q, const KeysValues& kv, View<const int32_t, 1> cu_seqlens,
                        float scale, int64_t window, AnyView<void, 3> out, View<float, 2> lse);

/// Gradients of the flat layout. With P recomputed from lse and D[h,n] = d_out . out:
///   dS = P (d_out v^T - D),  dq = scale dS k,  dk = scale dS^T q,  dv = P^T d_out
/// summed over the query heads of a kv head.
/// dq, dk, dv are overwritten in the rows of the sequences; they may be strided parts of one buffer, and alias none of
/// the inputs, and are of their type.  delta: [heads, N] scratch, written for these rows only. The result does not depend on the number of threads.
KEEL_API void attention_backward(Context&, AnyView<const void, 3> d_out, AnyView<const void, 3> q,
                                 AnyView<const void, 3> k, AnyView<const void, 3> v, AnyView<const void, 3> out,
                                 View<const float, 2> lse, View<const int32_t, 1> cu_seqlens, float scale,
                                 int64_t window, AnyView<void, 3> dq, AnyView<void, 3> dk, AnyView<void, 3> dv,
                                 View<float, 2> delta);

/// Bytes of the context's scratch that the two want with this head_dim, in tiles for each of its threads: some 0.3 MB a
/// thread at head_dim 32, 0.6 MB at 128. Nothing else is allocated. 0 on a GPU, see expect_attention.
KEEL_API int64_t attention_memory(const Context&, int64_t head_dim);

/// The largest batch: N, S, and the keys that the pages of a sequence hold, 0 for flat ones.
struct AttentionExtents {
  int64_t tokens = 0, sequences = 0, heads = 0, kv_heads = 0, head_dim = 0, most_keys = 0;
  ElementType type = ElementType::fp32;
};
/// Keys in pages want up to 128 floats for each number of a kv head, of min(S, 128) sequences; a head_dim above 256 a copy
/// of q.
KEEL_API void expect_attention(OperationMemory&, const AttentionExtents&);

}  // namespace keel
