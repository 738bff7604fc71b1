#pragma once

#include <algorithm>
#include <cstdint>

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/parallel.h"

namespace keel {

/// Rows [begin, end) of a batch: a block or one of its pieces.
struct Rows {
  int64_t begin = 0, end = 0;
  int64_t block = 0;       ///< its number
  bool continues = false;  ///< a piece that is not the first of its block
  int64_t count() const { return end - begin; }
};

template <class T, int Rank>
View<T, Rank> slice(const View<T, Rank>& x, Rows rows) {
  return x.slice(rows.begin, rows.end);
}
template <class Access, int Rank>
AnyView<Access, Rank> slice(const AnyView<Access, Rank>& x, Rows rows) {
  return x.slice(rows.begin, rows.end);
}

/// How N rows are cut into blocks, which threads take in turns, and these into pieces, which fit their caches. All begin on
/// multiples of `unit`, itself a multiple of kReductionRows.
struct RowBlocks {
  int64_t rows = 0, count = 1, unit = kReductionRows;
  int64_t piece_units = 1;  ///< at most, of a piece

  /// Pieces of at most `wanted` rows (but a unit). One block for one thread; else one more than there are threads, so that
  /// the others go on with what a thread that is held up leaves, or as many as there are units.
  RowBlocks(int64_t N, int64_t wanted, int threads, int64_t unit = kReductionRows)
      : rows(N),
        count(std::clamp<int64_t>(chunk_count(N, unit), 1, threads == 1 ? 1 : threads + 1)),
        unit(unit),
        piece_units(std::max<int64_t>(1, wanted / unit)) {}
  int64_t most_rows() const { return std::min(most_units() * unit, rows); }
  int64_t most_rows_of_piece() const { return std::min(std::min(piece_units, most_units()) * unit, rows); }
  /// Of the largest block.
  int64_t pieces() const { return std::max<int64_t>(1, chunk_count(most_units(), piece_units)); }
  Rows at(int64_t block) const {
    const int64_t units = chunk_count(rows, unit);
    return {units * block / count * unit, std::min(units * (block + 1) / count * unit, rows), block};
  }
  /// body(rows) for the pieces of a block, in order.
  template <class Body>
  void for_pieces(int64_t block, Body body) const {
    const Rows all = at(block);
    const int64_t units = chunk_count(all.count(), unit), pieces = chunk_count(units, piece_units);
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t end = all.begin + units * (i + 1) / pieces * unit;
      body(Rows{all.begin + units * i / pieces * unit, std::min(end, all.end), block, i > 0});
    }
  }
  /// Rows of the thread that has most of them, of the mean: 1 where threads take turns.
  double imbalance(int threads) const {
    if (count > threads) return 1;
    return static_cast<double>(most_rows() * threads) / static_cast<double>(std::max<int64_t>(rows, 1));
  }

 private:
  int64_t most_units() const { return chunk_count(chunk_count(rows, unit), count); }
};

/// body(context, rows) for every block, each on one thread with the context of that thread: operations that work on rows
/// alone follow each other while their data lie in that thread's cache. A single block has the whole context.
template <class Body>
void for_row_blocks(Context& ctx, const RowBlocks& blocks, Body body) {
  if (blocks.count == 1) return body(ctx, blocks.at(0));
  for_parts(ctx.team(), blocks.count, [&](int64_t block, int thread) { body(ctx.worker(thread), blocks.at(block)); });
}

}  // namespace keel
