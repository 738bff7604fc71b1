#pragma once

#include <algorithm>
#include <cstdint>

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/parallel.h"

namespace keel {

/// Rows [begin, end) of a batch, one block of several.
struct Rows {
  int64_t begin = 0, end = 0;
  int64_t block = 0;  ///< its number
  int64_t count() const { return end - begin; }
};

template <class T, int Rank>
View<T, Rank> slice(const View<T, Rank>& x, Rows rows) {
  return x.slice(rows.begin, rows.end);
}

/// How N rows are cut into blocks that begin on multiples of `unit`, itself a multiple of kReductionRows.
struct RowBlocks {
  int64_t rows = 0, count = 1, unit = kReductionRows;

  /// About `wanted` rows a block, fewer where threads would be idle, and where there are enough rows the same number of
  /// blocks for each thread.
  RowBlocks(int64_t N, int64_t wanted, int threads, int64_t unit = kReductionRows) : rows(N), unit(unit) {
    const int64_t units = chunk_count(N, unit);
    count = std::max<int64_t>(1, std::min(chunk_count(N, wanted), units));
    const int64_t even = chunk_count(count, threads) * threads;
    if (threads > 1) count = std::max<int64_t>(1, std::min(even, units));
  }
  int64_t most_rows() const { return std::min(chunk_count(chunk_count(rows, unit), count) * unit, rows); }
  Rows at(int64_t block) const {
    const int64_t units = chunk_count(rows, unit);
    return {units * block / count * unit, std::min(units * (block + 1) / count * unit, rows), block};
  }
  /// Rows of the thread that has most of them, of the mean.
  double imbalance(int threads) const {
    const auto blocks = static_cast<double>(chunk_count(count, threads));
    return blocks * static_cast<double>(most_rows()) * threads / static_cast<double>(std::max<int64_t>(rows, 1));
  }
};

/// body(context, rows) for every block, each on one thread with the context of that thread: operations that work on rows
/// alone follow each other while their data lie in that thread's cache. A single block has the whole context.
template <class Body>
void for_row_blocks(Context& ctx, const RowBlocks& blocks, Body body) {
  if (blocks.count == 1) return body(ctx, blocks.at(0));
  for_parts(ctx.team(), blocks.count, [&](int64_t block, int thread) { body(ctx.worker(thread), blocks.at(block)); });
}

}  // namespace keel
