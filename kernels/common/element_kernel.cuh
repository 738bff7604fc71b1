#pragma once

// Operations that work on the elements of matrices, and sums of their columns. For *_cuda.cu only.

#include <algorithm>
#include <limits>
#include <string>

#include "keel/base/error.h"
#include "keel/kernels/common/chunk_sums.h"
#include "keel/kernels/common/row_kernel.cuh"

namespace keel {

inline constexpr int kElementThreads = 256;

/// How blocks cover rows of d columns: 2^shift threads, of four columns each, beside each other, and `across` blocks.
struct ElementGrid {
  int d, shift, across;
  /// Error(shape) for more columns than an int counts.
  explicit ElementGrid(int64_t columns) : d(static_cast<int>(columns)), shift(0) {
    if (columns > std::numeric_limits<int>::max()) {
      throw Error(ErrorKind::shape, std::to_string(columns) + " columns are more than a GPU's kernels take");
    }
    const int64_t groups = (columns + 3) / 4;
    while ((1 << shift) < kElementThreads && (1 << shift) < groups) ++shift;
    across = static_cast<int>(std::max<int64_t>(1, (groups + (1 << shift) - 1) >> shift));
  }
  /// For so many rows, or chunks of rows.
  dim3 blocks(int64_t rows) const {
    const int64_t down = kElementThreads >> shift;
    return dim3(static_cast<unsigned>((rows + down - 1) / down * across));
  }
  __device__ int64_t row() const {
    return static_cast<int64_t>(blockIdx.x / across) * (kElementThreads >> shift) + (threadIdx.x >> shift);
  }
  __device__ int column() const {
    return 4 * (static_cast<int>(blockIdx.x % across << shift) + static_cast<int>(threadIdx.x & ((1U << shift) - 1)));
  }
};

template <bool kWide, class Body>
__global__ void __launch_bounds__(kElementThreads)
    over_elements(const ElementGrid grid, int64_t rows, const Body body) {
  const int64_t r = grid.row();
  const int c = grid.column();
  if (r < rows && c < grid.d) body(r, Columns<kWide>{c, grid.d - c, 0});
}

/// body(r, at) on the device for all columns of all rows; `wide` as have_wide_rows says of all matrices and vectors.
template <class Body>
void for_elements(CudaQueue& queue, int64_t rows, int64_t d, bool wide, const Body& body) {
  if (d == 0) return;
  const ElementGrid grid(d);
  launch(queue, wide ? over_elements<true, Body> : over_elements<false, Body>, grid.blocks(rows), kElementThreads, 0,
         grid, rows, body);
}

template <bool kWide, class Body>
__global__ void __launch_bounds__(kElementThreads, 2)
    over_chunks(const ElementGrid grid, int64_t rows, float* __restrict__ chunks, int64_t stride, const Body body) {
  const int64_t chunk = grid.row(), begin = chunk * kChunkRows, end = min(begin + kChunkRows, rows);
  const int c = grid.column();
  if (begin >= end || c >= grid.d) return;
  const Columns<kWide> at{c, grid.d - c, 0};
  float4 sum = splat(0);
#pragma unroll 4
  for (int64_t r = begin; r < end; ++r) sum = sum + body(r, at);
  at.store(chunks + chunk * stride, sum);
}

/// total[c] += sum over rows of the columns that body(r, at) returns, or what `sums` says; `wide` as above.
template <class Body>
void sum_over_rows(CudaQueue& queue, int64_t rows, int64_t d, bool wide, RowSums sums, const View<float, 2>& partial,
                   float* total, const Body& body) {
  if (d == 0) return;
  ChunkSums chunk_sums(queue, sums, rows, d, partial);
  if (chunk_sums.takes_rows()) {
    const ElementGrid grid(d);
    launch(queue, wide ? over_chunks<true, Body> : over_chunks<false, Body>, grid.blocks(chunk_sums.count()),
           kElementThreads, 0, grid, rows, chunk_sums.chunks(), chunk_sums.stride(), body);
  }
  chunk_sums.add(0, d, total);
  chunk_sums.add_up();
}

}  // namespace keel
