#include <algorithm>

#include "keel/kernels/common/chunk_sums.h"
#include "keel/kernels/common/device.cuh"

namespace keel {
namespace {

constexpr int kColumns = 32;  // of a block
constexpr int kLanes = 32;    // threads that share a column

struct AddChunks {
  const float* chunks;
  int64_t count, stride;
  bool overwrites;
  ChunkSums::Total totals[ChunkSums::kMostTotals];
};

/// A block takes kColumns columns of one total: each thread every kLanes-th chunk of its column, then a warp the threads
/// of a column.
__global__ void __launch_bounds__(kColumns* kLanes) add_chunks(const AddChunks add) {
  KEEL_SHARED(double, sums, [kLanes][kColumns + 1]);
  const ChunkSums::Total to = add.totals[blockIdx.y];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kColumns;
  if (first >= to.count) return;
  const int inner = threadIdx.x % kWarp, outer = threadIdx.x / kWarp;
  double sum = 0;
  if (first + inner < to.count) {
    const float* column = add.chunks + to.offset + first + inner;
#pragma unroll 4
    for (int64_t k = outer; k < add.count; k += kLanes) sum += column[k * add.stride];
  }
  sums[outer][inner] = sum;
  __syncthreads();
  const auto whole = static_cast<float>(warp_sum(sums[inner][outer]));
  const int64_t c = first + outer;
  if (inner != 0 || c >= to.count) return;
  to.total[c] = add.overwrites ? whole : to.total[c] + whole;
}

}  // namespace

ChunkSums::ChunkSums(CudaQueue& queue, RowSums sums, int64_t rows, int64_t columns, const View<float, 2>& partial)
    : queue_(queue), sums_(sums), rows_(rows), stride_((columns + 3) / 4 * 4), partial_(partial.data()) {
  if (!takes_rows()) return;
  const int64_t bytes = count() * stride_ * static_cast<int64_t>(sizeof(float));
  chunks_ = static_cast<float*>(grown(queue.sums, queue.sums_bytes, bytes));
}

void ChunkSums::add(int64_t offset, int64_t count, float* total) {
  if (total != nullptr) totals_[totals_count_++] = {offset, count, total};
}

void ChunkSums::add_up() {
  if (rows_ == 0) return;
  AddChunks add{.chunks = chunks_, .count = count(), .stride = stride_, .overwrites = false, .totals = {}};
  if (sums_ == RowSums::add_up) {
    add.chunks = partial_;
    add.count = 1;
  }
  int64_t most = 0;
  for (int i = 0; i < totals_count_; ++i) {
    add.totals[i] = totals_[i];
    most = std::max(most, totals_[i].count);
    if (sums_ == RowSums::of_chunks) {
      add.overwrites = true;
      add.totals[i].total = partial_ + totals_[i].offset;
    }
  }
  const auto blocks = static_cast<unsigned>((most + kColumns - 1) / kColumns);
  launch(queue_, add_chunks, dim3(blocks, static_cast<unsigned>(totals_count_)), kColumns * kLanes, 0, add);
}

}  // namespace keel
