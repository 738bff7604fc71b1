#pragma once

// How sequences are cut into blocks of work. Included by attention_*_cpu.cpp only; internal linkage as
// attention_tiles.h.

#include "keel/kernels/attention/attention_cpu.h"
#include "keel/kernels/attention/attention_tiles.h"

namespace keel::KEEL_ISA {
namespace {

/// Numbers the blocks of all sequences without a list: block b of sequence s, `block` rows of the sequence's
/// tokens * rows_per_token rows, has number (cu_seqlens[s] - cu_seqlens[0]) * rows_per_token / block + s + b. Some numbers
/// stay unused.
struct Blocks {
  const AttentionSizes& sizes;
  int64_t rows_per_token, block;

  struct Place {
    int64_t sequence, first_row, rows;  ///< rows <= 0: no such block
  };

  int64_t first_of(int64_t sequence) const {
    return (sizes.cu_seqlens[sequence] - sizes.cu_seqlens[0]) * rows_per_token / block + sequence;
  }
  int64_t count() const { return first_of(sizes.sequences); }
  Place place(int64_t number) const {
    int64_t low = 0, high = sizes.sequences - 1;  // the last sequence with first_of(sequence) <= number
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (first_of(middle) <= number)
        low = middle;
      else
        high = middle - 1;
    }
    const int64_t total = (sizes.cu_seqlens[low + 1] - sizes.cu_seqlens[low]) * rows_per_token;
    const int64_t first_row = (number - first_of(low)) * block;
    return {low, first_row, total - first_row < block ? total - first_row : block};
  }
};

/// Rows first_row .. first_row + rows (row r: query head r % group of token r / group) taken apart by head, whose rows
/// lie evenly in memory: body(head, token of its first row, index of that row, count), the rows being `group` apart.
template <class Body>
KEEL_INLINE void for_heads(int64_t first_row, int64_t rows, int64_t group, Body body) {
  int64_t token = first_row / group, head = first_row % group;
  for (int64_t i = 0; i < smaller(rows, group); ++i) {
    body(head, token, i, (rows - i + group - 1) / group);
    if (++head == group) {
      head = 0;
      ++token;
    }
  }
}

}  // namespace
}  // namespace keel::KEEL_ISA
