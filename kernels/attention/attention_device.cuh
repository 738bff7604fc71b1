#pragma once

// What the kernels of attention share: how sequences are cut into blocks of work, and products of tiles in fp32.

#include <algorithm>
#include <bit>

#include "keel/kernels/attention/attention_cuda.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/device.cuh"

namespace keel {

/// Up to this many rows of a kv head, keys in pages are read once, by blocks that share them.
inline constexpr int kFewRows = kCudaFewRows;

/// Divides numbers below 2^31 by a multiplication. Granlund & Montgomery 1994, Division by invariant integers.
struct Divisor {
  int value;
  unsigned factor, shift;

  Divisor() = default;
  explicit Divisor(int64_t d)
      : value(static_cast<int>(d)), shift(static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(d - 1)))) {
    const auto divisor = static_cast<uint64_t>(d), power = uint64_t{1} << shift;
    factor = static_cast<unsigned>(((power - divisor) << 32) / divisor + 1);
  }
  __device__ int quotient(int n) const {
    const auto bits = static_cast<unsigned>(n);
    return static_cast<int>((__umulhi(bits, factor) + bits) >> shift);
  }
};

/// How an attention is cut: its sizes, query heads of a kv head, and where keys in pages lie.
struct AttentionCut {
  CudaAttentionSizes sizes;
  CudaPages pages;  ///< page_table null: none
  Divisor group, page_size;
};

/// Where a block of a sequence's rows lies. Query row r of a kv head is query head r % group of token r / group; key row r
/// is key r.
struct AttentionPlace {
  int64_t sequence;
  int first_row, rows;  ///< rows 0: no such block
  int queries, keys;
  int64_t first_token;  ///< of the sequence, in the batch

  /// Of row i of the block.
  __device__ int token_of(int i, const Divisor& group) const { return group.quotient(first_row + i); }
  __device__ int head_of(int i, const Divisor& group) const { return first_row + i - token_of(i, group) * group.value; }
};

/// Numbers the blocks of all sequences without a list: block b of sequence s, `block` rows of the sequence's
/// tokens * rows_per_token rows, has number (cu_seqlens[s] - cu_seqlens[0]) * rows_per_token / block + s + b. Some numbers
/// stay unused.
template <int kBlock>
__device__ inline AttentionPlace attention_place(const AttentionCut& cut, int64_t number, int rows_per_token) {
  const CudaAttentionSizes& z = cut.sizes;
  const int32_t* cu = z.cu_seqlens;
  const int64_t start = cu[0];
  const auto first_of = [&](int64_t s) { return (cu[s] - start) * rows_per_token / kBlock + s; };
  int64_t low = 0, high = z.sequences - 1;  // the last sequence with first_of(sequence) <= number
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (first_of(middle) <= number) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  AttentionPlace place;
  place.sequence = low;
  place.first_token = cu[low];
  place.queries = static_cast<int>(cu[low + 1] - place.first_token);
  place.keys = cut.pages.page_table == nullptr ? place.queries : cut.pages.kv_lengths[low];
  place.first_row = static_cast<int>(number - first_of(low)) * kBlock;
  place.rows = max(0, min(place.queries * rows_per_token - place.first_row, kBlock));
  return place;
}
/// Error(shape) where rows are too many to be counted.
AttentionCut attention_cut(const CudaAttentionSizes& sizes, const CudaPages& pages);
inline int64_t attention_blocks(const CudaAttentionSizes& z, int64_t rows_per_token, int block) {
  return z.tokens * rows_per_token / block + z.sequences;
}

/// Row of keys and values that holds a token of a sequence.
__device__ inline int64_t key_row(const AttentionCut& cut, const AttentionPlace& place, int key) {
  const CudaPages& pages = cut.pages;
  if (pages.page_table == nullptr) return place.first_token + key;
  const int page = cut.page_size.quotient(key);
  return (pages.page_table[place.sequence * pages.page_table_stride + page] - int64_t{page}) * cut.page_size.value +
         key;
}

/// Keys that a query sees.
struct KeyRange {
  int begin, end;
};
__device__ inline KeyRange keys_of(const CudaAttentionSizes& z, const AttentionPlace& place, int token) {
  const int end = place.keys - place.queries + token + 1;
  return {z.window > 0 ? max(0, end - static_cast<int>(z.window)) : 0, end};
}

// ---- tiles in fp32: 256 threads as 16 x 16, thread (tx, ty) = (threadIdx.x % 16, threadIdx.x / 16)

inline constexpr int kTileThreads = 256;
/// Keys of a tile; columns that are multiplied together; columns of a row that are added to together.
inline constexpr int kTileKeys = 64, kTileDepth = 32, kTileColumns = 64;
/// Rows of a transposed tile lie so far apart that its columns fall on other banks.
template <int kRows>
inline constexpr int kTileStride = 16 * kRows + 4;
/// Memory for the operands of a product.
template <int kRows>
inline constexpr int kPanelFloats = std::max(kTileDepth*(kTileStride<kRows> + kTileStride<4>), kTileKeys* kTileColumns);

/// Elements column .. column + 3 of a row of `columns`, zeros behind its end.
template <class T>
__device__ inline float4 load4_within(const T* row, int column, int columns, bool vectors) {
  if (vectors && column + 4 <= columns) return load4(row + column);
  return make_float4(column < columns ? load1(row + column) : 0, column + 1 < columns ? load1(row + column + 1) : 0,
                     column + 2 < columns ? load1(row + column + 2) : 0,
                     column + 3 < columns ? load1(row + column + 3) : 0);
}
template <class T>
__device__ inline void store4_within(T* row, int column, int columns, bool vectors, float4 values) {
  if (vectors && column + 4 <= columns) return store4(row + column, values);
  const float each[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + i < columns) store1(row + column + i, each[i]);
  }
}

/// Rows of a tensor, by where each begins (shared memory).
template <class T>
struct TileRows {
  const T* data;
  const int64_t* at;
  int count;
};

/// Columns first .. first + kTileDepth of up to kCount rows, transposed; zeros where there are none.
template <int kCount, class T>
__device__ inline void load_transposed(const TileRows<T>& from, int first, int columns, bool vectors, float* to) {
  constexpr int kStride = kCount + 4;
  for (int e = threadIdx.x; e < kCount * kTileDepth / 4; e += kTileThreads) {
    const int row = e % kCount, column = e / kCount * 4;
    const float4 v = row < from.count ? load4_within(from.data + from.at[row], first + column, columns, vectors)
                                      : make_float4(0, 0, 0, 0);
    to[column * kStride + row] = v.x;
    to[(column + 1) * kStride + row] = v.y;
    to[(column + 2) * kStride + row] = v.z;
    to[(column + 3) * kStride + row] = v.w;
  }
}

template <int kRows>
__device__ inline void load_rows(float (&to)[kRows], const float* from) {
  if constexpr (kRows == 4) {
    const float4 v = load4(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else {
    to[0] = from[0];
  }
}

/// sums[i][j] = a row kRows ty + i of `left` times row 4 tx + j of `right`.
template <int kRows, class T>
__device__ inline void multiply_rows(float (&sums)[kRows][4], const TileRows<T>& left, const TileRows<T>& right,
                                     int columns, bool vectors, float* panel) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float* left_panel = panel;
  float* right_panel = panel + kTileDepth * kTileStride<kRows>;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i][j] = 0;
  }
  for (int first = 0; first < columns; first += kTileDepth) {
    __syncthreads();  // the panel may still be read
    load_transposed<16 * kRows>(left, first, columns, vectors, left_panel);
    load_transposed<64>(right, first, columns, vectors, right_panel);
    __syncthreads();
    const int depth = min(kTileDepth, (columns - first + 3) / 4 * 4);
#pragma unroll 4
    for (int k = 0; k < depth; ++k) {
      float a[kRows], b[4];
      load_rows(a, left_panel + k * kTileStride<kRows> + kRows * ty);
      load_rows(b, right_panel + k * kTileStride<4> + 4 * tx);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
      }
    }
  }
}

/// sums[i][4 c + j] += sum over l of weights[l][kRows ty + i] * row l of `rows`, its column first + 64 c + 4 tx + j, for l in
/// [begin[i], end[i]) or, where `all` is the same for the block, all of them.
template <int kRows, int kColumns, class T>
__device__ inline void add_weighted_rows(float (&sums)[kRows][kColumns / 16], const float* weights,
                                         const TileRows<T>& rows, int first, int columns, bool vectors, bool all,
                                         const int (&begin)[kRows], const int (&end)[kRows], float* panel) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int c = 0; c < kColumns / kTileColumns; ++c) {
    const int column = first + c * kTileColumns;
    if (column >= columns) break;
    __syncthreads();  // the panel may still be read
    for (int e = threadIdx.x; e < rows.count * kTileColumns / 4; e += kTileThreads) {
      const int row = e / (kTileColumns / 4), at = e % (kTileColumns / 4) * 4;
      store4(panel + row * kTileColumns + at, load4_within(rows.data + rows.at[row], column + at, columns, vectors));
    }
    __syncthreads();
    const float* mine = panel + 4 * tx;
#pragma unroll 4
    for (int l = 0; l < rows.count; ++l) {
      float w[kRows];
      load_rows(w, weights + l * kTileStride<kRows> + kRows * ty);
      const float4 v = load4(mine + l * kTileColumns);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (!all && (l < begin[i] || l >= end[i])) continue;
        sums[i][4 * c] = fmaf(w[i], v.x, sums[i][4 * c]);
        sums[i][4 * c + 1] = fmaf(w[i], v.y, sums[i][4 * c + 1]);
        sums[i][4 * c + 2] = fmaf(w[i], v.z, sums[i][4 * c + 2]);
        sums[i][4 * c + 3] = fmaf(w[i], v.w, sums[i][4 * c + 3]);
      }
    }
  }
}

template <class T>
bool has_fours(const CudaHeadRows<T>& x) {
  return x.row_stride % 4 == 0 && x.head_stride % 4 == 0 && is_aligned(x.data, 4 * sizeof(T));
}

}  // namespace keel
