#pragma once

// Products of bf16 tiles on tensor cores. A tile lies in shared memory, its rows kPitch elements apart: eight rows of 16
// bytes then fall on different banks. Heads of fewer columns than a tile has are widened by zeros. A warp computes 16 rows
// at a time; see mma_m16n8k16 for which lane holds what.

#include <type_traits>

#include "keel/kernels/attention/attention_device.cuh"

namespace keel {

using Half = __nv_bfloat16;

inline constexpr int kTensorWarps = 4, kTensorThreads = kTensorWarps * kWarp;
template <int kDim>
inline constexpr int kPitch = kDim + 8;

/// Begins to copy rows of `width` elements, the i-th from `from` + at(i); zeros instead of rows beyond `count` and of the
/// rest of kDim columns.
template <int kDim, int kRows, class At>
__device__ inline void fetch_rows(Half* to, const Half* from, int count, int width, At at) {
  constexpr int kChunk = 8, kChunks = kDim / kChunk;
  static_assert(kRows * kChunks % kTensorThreads == 0);
#pragma unroll 2
  for (int i = 0; i < kRows * kChunks / kTensorThreads; ++i) {
    const int e = i * kTensorThreads + static_cast<int>(threadIdx.x), row = e / kChunks, column = e % kChunks * kChunk;
    const bool is_there = row < count && column < width;
    cp_async16(to + row * kPitch<kDim> + column, from + (is_there ? at(row) + column : 0), is_there);
  }
}

/// Rows first .. first + 15, columns k .. k + 15 as the left operand.
template <int kDim>
__device__ inline void left_fragment(unsigned (&a)[4], const Half* tile, int first, int k) {
  const int lane = threadIdx.x % kWarp, matrix = lane / 8, row = lane % 8;
  ldmatrix_x4<false>(a, tile + (first + matrix % 2 * 8 + row) * kPitch<kDim> + k + matrix / 2 * 8);
}

/// Two right operands. Of a product with transposed rows: rows first .. first + 15 (8 each) are its columns, columns k ..
/// k + 15 what is summed over.
template <int kDim>
__device__ inline void transposed_fragments(unsigned (&b)[4], const Half* tile, int first, int k) {
  const int lane = threadIdx.x % kWarp, matrix = lane / 8, row = lane % 8;
  ldmatrix_x4<false>(b, tile + (first + matrix / 2 * 8 + row) * kPitch<kDim> + k + matrix % 2 * 8);
}
/// Of a product with rows: columns first .. first + 15 (8 each), summed over rows k .. k + 15.
template <int kDim>
__device__ inline void row_fragments(unsigned (&b)[4], const Half* tile, int first, int k) {
  const int lane = threadIdx.x % kWarp, matrix = lane / 8, row = lane % 8;
  ldmatrix_x4<true>(b, tile + (k + matrix % 2 * 8 + row) * kPitch<kDim> + first + matrix / 2 * 8);
}

template <int kM, int kN>
using Fragments = float[kM][kN / 8][4];

/// sums = rows first .. first + 16 kM of `left` times the kN rows of `right`.
template <int kDim, int kM, int kN>
__device__ inline void multiply_tiles(Fragments<kM, kN>& sums, const Half* left, int first, const Half* right) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
    }
  }
#pragma unroll 2
  for (int k = 0; k < kDim; k += 16) {
    unsigned a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) left_fragment<kDim>(a[m], left, first + 16 * m, k);
#pragma unroll
    for (int n = 0; n < kN / 16; ++n) {
      unsigned b[4];
      transposed_fragments<kDim>(b, right, 16 * n, k);
      const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_m16n8k16(sums[m][2 * n], a[m], low);
        mma_m16n8k16(sums[m][2 * n + 1], a[m], high);
      }
    }
  }
}

/// sums += weights, rounded to bf16, times kN rows of `rows`, their columns first .. first + kColumns.
template <int kDim, int kM, int kN, int kColumns>
__device__ inline void add_weighted_tile(Fragments<kM, kColumns>& sums, const Fragments<kM, kN>& weights,
                                         const Half* rows, int first) {
#pragma unroll
  for (int k = 0; k < kN / 16; ++k) {
    unsigned a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const float(&low)[4] = weights[m][2 * k];
      const float(&high)[4] = weights[m][2 * k + 1];
      a[m][0] = pack_bf16(low[0], low[1]);
      a[m][1] = pack_bf16(low[2], low[3]);
      a[m][2] = pack_bf16(high[0], high[1]);
      a[m][3] = pack_bf16(high[2], high[3]);
    }
#pragma unroll
    for (int c = 0; c < kColumns / 16; ++c) {
      unsigned b[4];
      row_fragments<kDim>(b, rows, first + 16 * c, 16 * k);
      const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_m16n8k16(sums[m][2 * c], a[m], low);
        mma_m16n8k16(sums[m][2 * c + 1], a[m], high);
      }
    }
  }
}

/// Rows of a tile, `width` of kColumns columns from 0 on, by all lanes of the warp whose rows they are: row(m, half) tells
/// whether and where in global memory 8 (2 m + half) + lane / 4 goes; factor(m, half) what it is multiplied by.
template <int kDim, int kM, int kColumns, class Factor, class To>
__device__ inline void store_tile(const Fragments<kM, kColumns>& sums, Half* tile, int first, int width, Factor factor,
                                  To to) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float f = factor(m, half);
      Half* row = tile + (first + 16 * m + 8 * half + g) * kPitch<kDim> + 2 * t;
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        *reinterpret_cast<unsigned*>(row + 8 * n) = pack_bf16(sums[m][n][2 * half] * f, sums[m][n][2 * half + 1] * f);
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kColumns / 8;
  for (int e = lane; e < 16 * kM * kChunks; e += kWarp) {
    const int row = e / kChunks, column = e % kChunks * 8;
    Half* out = to(first + row);
    if (out == nullptr || column >= width) continue;
    *reinterpret_cast<uint4*>(out + column) =
        *reinterpret_cast<const uint4*>(tile + (first + row) * kPitch<kDim> + column);
  }
}

inline constexpr float kLog2e = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

/// body(std::integral_constant<int, kDim>()) with the columns of the least tile that has room for heads of so many; false if
/// none has.
template <class Body>
bool with_tile_columns(int64_t head_dim, Body body) {
  if (head_dim % 8 != 0 || head_dim > 256) return false;
  if (head_dim <= 32) return body(std::integral_constant<int, 32>());
  if (head_dim <= 64) return body(std::integral_constant<int, 64>());
  if (head_dim <= 96) return body(std::integral_constant<int, 96>());
  if (head_dim <= 128) return body(std::integral_constant<int, 128>());
  return body(std::integral_constant<int, 256>());
}

/// Rows begin where 16 bytes may be read.
template <class T>
bool has_eights(const CudaHeadRows<T>& x) {
  return x.row_stride % 8 == 0 && x.head_stride % 8 == 0 && is_aligned(x.data, 16);
}

inline CudaHeadRows<Half> halves(const CudaHeadRows<Bf16>& x) {
  return {reinterpret_cast<Half*>(x.data), x.row_stride, x.head_stride};
}
inline CudaHeadRows<const Half> halves(const CudaHeadRows<const Bf16>& x) {
  return {reinterpret_cast<const Half*>(x.data), x.row_stride, x.head_stride};
}

}  // namespace keel
