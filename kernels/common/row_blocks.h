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

/// How N rows are cut into blocks that begin on chunks of kReductionRows.
struct RowBlocks {
  int64_t rows = 0, count = 1;

  /// About `wanted` rows a block, and where there are enough rows the same number of blocks for each thread.
  RowBlocks(int64_t N, int64_t wanted, int threads) : rows(N) {
    const int64_t chunks = chunk_count(N);
    count = std::max<int64_t>(1, std::min((N + wanted - 1) / wanted, chunks));
    const int64_t even = chunk_count(count, threads) * threads;
    if (threads > 1 && even <= chunks) count = even;
  }
  int64_t most_rows() const { return std::min(chunk_count(chunk_count(rows), count) * kReductionRows, rows); }
  Rows at(int64_t block) const {
    const int64_t chunks = chunk_count(rows);
    return {chunks * block / count * kReductionRows, std::min(chunks * (block + 1) / count * kReductionRows, rows),
            block};
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
