#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "keel/kernels/common/chunks.h"

namespace keel {

/// What operations keep on a GPU beside the memory that they are given, until their context ends: of each kind as much
/// as the call that wanted most of it. Each expect_* function counts ahead what calls of its operation will want, on
/// any GPU.
class OperationMemory {
 public:
  enum Kind {
    scratch,
    row_sums,
    products,
    rounded_bias,  ///< of products
    widened_weights,
    token_order,
    row_losses,
    segments,
    batches,
    kKinds
  };

  void expect(Kind kind, int64_t bytes) { bytes_[kind] = std::max(bytes_[kind], bytes); }
  int64_t bytes(Kind kind) const { return bytes_[kind]; }
  int64_t total_bytes() const { return std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0}); }

 private:
  std::array<int64_t, kKinds> bytes_{};
};

/// Sums over `rows` rows of `columns` numbers (RowSums): seam_partial_columns of a seam, 2 d of a LayerNorm, d of all
/// others.
inline void expect_row_sums(OperationMemory& memory, int64_t rows, int64_t columns) {
  memory.expect(OperationMemory::row_sums, chunk_sums_bytes(rows, columns));
}

}  // namespace keel
