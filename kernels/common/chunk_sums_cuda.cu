#include <algorithm>

#include "keel/kernels/common/chunk_sums.h"
#include "keel/kernels/common/device.cuh"

namespace keel {
namespace {

constexpr int kColumns = kWarp;  // of a block
constexpr int kMostLanes = 32;   // threads that share a column
constexpr int64_t kOfALane = 4;  // chunks, at least, where there are more

struct AddChunks {
  const float* chunks;
  int64_t count, stride;
  bool overwrites;
  ChunkSums::Total totals[ChunkSums::kMostTotals];
};

/// A block takes kColumns columns of one total: each thread every lanes-th chunk of its column, then one the threads of a
/// column.
__global__ void __launch_bounds__(kColumns* kMostLanes) add_chunks(const AddChunks add) {
  KEEL_SHARED(double, sums, [kMostLanes][kColumns]);
  const ChunkSums::Total to = add.totals[blockIdx.y];
  const int column = threadIdx.x % kColumns, lane = threadIdx.x / kColumns, lanes = blockDim.x / kColumns;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kColumns + column;
  double sum = 0;
  if (c < to.count) {
    const float* numbers = add.chunks + to.offset + c;
#pragma unroll 4
    for (int64_t k = lane; k < add.count; k += lanes) sum += numbers[k * add.stride];
  }
  sums[lane][column] = sum;
  __syncthreads();
  if (lane != 0 || c >= to.count) return;
  for (int i = 1; i < lanes; ++i) sum += sums[i][column];
  const auto whole = static_cast<float>(sum);
  to.total[c] = add.overwrites ? whole : to.total[c] + whole;
}

}  // namespace

ChunkSums::ChunkSums(CudaQueue& queue, RowSums sums, int64_t rows, int64_t columns, const View<float, 2>& partial)
    : queue_(queue), sums_(sums), rows_(rows), stride_(chunk_sums_stride(columns)), partial_(partial.data()) {
  if (!takes_rows()) return;
  chunks_ = static_cast<float*>(grown(queue.sums, queue.sums_bytes, chunk_sums_bytes(rows, columns)));
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
  int lanes = 1;
  while (lanes < kMostLanes && lanes * kOfALane < add.count) lanes *= 2;
  launch(queue_, add_chunks, dim3(blocks, static_cast<unsigned>(totals_count_)),
         dim3(static_cast<unsigned>(kColumns * lanes)), 0, add);
}

}  // namespace keel
