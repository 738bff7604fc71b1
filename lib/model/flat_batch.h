#pragma once

#include <cstdint>

#include <algorithm>

#include "keel/base/view.h"
#include "keel/kernels/common/row_blocks.h"

namespace keel {

/// The one form of input that training, validation and evaluation share: the tokens of S sequences (or documents) one
/// after the other; in generation the new tokens of each sequence. All views are in device memory.
struct FlatBatch {
  View<const int32_t, 1> tokens;      ///< [N]
  View<const int32_t, 1> targets;     ///< [N]; null where no loss is wanted
  View<const int32_t, 1> positions;   ///< [N], for RoPE; restart at 0 in each document when documents are masked
  View<const float, 1> weights;       ///< [N], weight of each target in the loss; null where no loss is wanted
  View<const int32_t, 1> cu_seqlens;  ///< [S + 1], ascending from 0 to N; attention never crosses a bound

  /// The bounds, in cu_seqlens, of the sequences within the rows; null if a bound of the rows is none of theirs.
  View<const int32_t, 1> sequences_of(Rows rows) const {
    if (rows.begin == 0 && rows.end == tokens.extent(0)) return cu_seqlens;
    const int32_t* const first = cu_seqlens.data();
    const int32_t* const end = first + cu_seqlens.extent(0);
    const int32_t* const from = std::lower_bound(first, end, rows.begin);
    const int32_t* const to = std::lower_bound(from, end, rows.end);
    if (to == end || *from != rows.begin || *to != rows.end) return {};
    return cu_seqlens.slice(from - first, to - first + 1);
  }

  /// With a key-value cache: the keys and values of the batch's tokens go to rows `cache_rows` [N] of the cache, and
  /// the tokens of sequence s, its newest, attend to its kv_lengths[s] tokens, of which token t lies in row
  /// page_table(s, t / page_size) * page_size + t % page_size. Null without; the backward pass takes none.
  View<const int32_t, 1> cache_rows;
  View<const int32_t, 2> page_table;  ///< [S, pages of the longest sequence]
  View<const int32_t, 1> kv_lengths;  ///< [S]
};

}  // namespace keel
