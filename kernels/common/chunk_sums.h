#pragma once

// Sums over rows on a device. For *_cuda.cu only.

#include <cstdint>

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_queue.h"

namespace keel {

/// What an operation with sums over rows does (RowSums) on a device: its kernel leaves the sums of each chunk of kChunkRows
/// rows in chunks(), then add_up() adds them up, in double and in an order that depends on their number alone.
class ChunkSums {
 public:
  static constexpr int kMostTotals = 8;

  /// partial: the operation's, of which the first row is used. columns: numbers of a chunk.
  ChunkSums(CudaQueue& queue, RowSums sums, int64_t rows, int64_t columns, const View<float, 2>& partial);

  /// Whether the operation's kernel is to run.
  bool takes_rows() const { return sums_ != RowSums::add_up && rows_ > 0; }
  int64_t count() const { return chunk_count(rows_, kChunkRows); }
  /// [count(), stride()], aligned to 16 as its rows are.
  float* chunks() const { return chunks_; }
  int64_t stride() const { return stride_; }

  /// The numbers [offset, offset + count) of a chunk belong to `total`, where that is not null.
  void add(int64_t offset, int64_t count, float* total);
  /// total[i] += sum over chunks, of all that was named; or only their sums to the first row of `partial`.
  void add_up();

  struct Total {
    int64_t offset, count;
    float* total;
  };

 private:
  CudaQueue& queue_;
  RowSums sums_;
  int64_t rows_, stride_;
  float *chunks_ = nullptr, *partial_;
  int totals_count_ = 0;
  Total totals_[kMostTotals];
};

}  // namespace keel
