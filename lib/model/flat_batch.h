#pragma once

#include <cstdint>

#include <algorithm>

#include "keel/base/view.h"
#include "keel/kernels/common/row_blocks.h"

namespace keel {

/// The one form of input that training, validation and evaluation share: the tokens of S sequences (or documents) one
/// after the other; in generation the new tokens of each sequence.
template <class Memory>
struct BasicBatch {
  template <class T, int Rank>
  using In = View<const T, Rank, Memory>;

  In<int32_t, 1> tokens;      ///< [N]
  In<int32_t, 1> targets;     ///< [N]; null where no loss is wanted
  In<int32_t, 1> positions;   ///< [N], for RoPE; restart at 0 in each document when documents are masked
  In<float, 1> weights;       ///< [N], weight of each target in the loss; null where no loss is wanted
  In<int32_t, 1> cu_seqlens;  ///< [S + 1], ascending from 0 to N; attention never crosses a bound

  /// With a key-value cache: the keys and values of the batch's tokens go to rows `cache_rows` [N] of the cache, and
  /// the tokens of sequence s, its newest, attend to its kv_lengths[s] tokens, of which token t lies in row
  /// page_table(s, t / page_size) * page_size + t % page_size. Null without; the backward pass takes none.
  In<int32_t, 1> cache_rows;
  In<int32_t, 2> page_table;  ///< [S, pages of the longest sequence]
  In<int32_t, 1> kv_lengths;  ///< [S]
};

/// In memory of the host.
using HostBatch = BasicBatch<HostMemory>;
/// As operations take it.
using FlatBatch = BasicBatch<DeviceMemory>;

/// The bounds, in cu_seqlens, of the sequences within the rows; null if a bound of the rows is none of theirs. All rows, or
/// a batch of a CPU.
inline View<const int32_t, 1> sequences_of(const FlatBatch& batch, Rows rows) {
  if (rows.begin == 0 && rows.end == batch.tokens.extent(0)) return batch.cu_seqlens;
  const int32_t* const first = batch.cu_seqlens.data();
  const int32_t* const end = first + batch.cu_seqlens.extent(0);
  const int32_t* const from = std::lower_bound(first, end, rows.begin);
  const int32_t* const to = std::lower_bound(from, end, rows.end);
  if (to == end || *from != rows.begin || *to != rows.end) return {};
  return batch.cu_seqlens.slice(from - first, to - first + 1);
}

}  // namespace keel
