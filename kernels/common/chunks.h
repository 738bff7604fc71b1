#pragma once

#include <cstdint>

namespace keel {

/// Reductions over rows go over fixed chunks of this many rows and then over the chunks in order, never over threads,
/// so that a sum does not depend on how many threads computed it.
inline constexpr int64_t kReductionRows = 64;

/// What an operation with sums over rows does: everything; its rows, leaving the sums of chunks in `partial`; or add
/// these up. Rows can be taken in ranges that begin on a chunk, each with its rows of `partial`, before the sums of all
/// are added up once. On a GPU an operation always gets all its rows at once: `of_chunks` leaves their sum in the first row of
/// `partial`, and `add_up` adds that.
enum class RowSums { everything, of_chunks, add_up };

inline int64_t chunk_count(int64_t rows, int64_t chunk = kReductionRows) {
  return (rows + chunk - 1) / chunk;
}

/// Rows of a chunk on a GPU, whatever GPU it is.
inline constexpr int64_t kChunkRows = 16;

/// There: floats from the sums of one chunk, `columns` numbers, to those of the next, and bytes of all of them.
inline int64_t chunk_sums_stride(int64_t columns) {
  return (columns + 3) / 4 * 4;
}
inline int64_t chunk_sums_bytes(int64_t rows, int64_t columns) {
  return chunk_count(rows, kChunkRows) * chunk_sums_stride(columns) * static_cast<int64_t>(sizeof(float));
}

}  // namespace keel
