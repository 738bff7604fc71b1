#pragma once

// For *_cuda.cu only.

#include "keel/kernels/common/chunk_sums.h"
#include "keel/kernels/common/row_kernel.cuh"

namespace keel {

/// Rows of the chunk that begins there; 0 behind the last row.
__device__ inline int chunk_rows(int64_t begin, int64_t rows) {
  return begin < rows ? static_cast<int>(min(rows - begin, kChunkRows)) : 0;
}

/// Sums over the rows of a chunk of the columns of a thread, which are to be left in `memory`: in registers meanwhile, or
/// there.
template <class Layout>
class ColumnSum {
 public:
  using At = Columns<Layout::kWide>;
  __device__ explicit ColumnSum(float* memory) : memory_(memory) {
#pragma unroll
    for (float4& sum : sums_) sum = splat(0);
  }
  /// is_first: of the chunk's rows.
  __device__ void add(At at, float4 value, bool is_first) {
    if constexpr (kInRegisters<Layout>) {
      sums_[at.group] = sums_[at.group] + value;
    } else {
      at.store(memory_, (is_first ? splat(0) : at.load(memory_)) + value);
    }
  }
  __device__ void finish(const RowTeam<Layout>& team) {
    if constexpr (kInRegisters<Layout>) team.for_columns([&](At at) { at.store(memory_, sums_[at.group]); });
  }

 private:
  float* memory_;
  float4 sums_[kInRegisters<Layout> ? Layout::kGroups : 1];
};

}  // namespace keel
