#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "keel/kernels/adamw/adamw_cuda.h"
#include "keel/kernels/common/counted_memory.h"

namespace keel {

/// The segments of the last call, cut into pieces, on the device.
class AdamwTable {
 public:
  AdamwTable() = default;
  AdamwTable(const AdamwTable&) = delete;
  AdamwTable& operator=(const AdamwTable&) = delete;
  ~AdamwTable() { free_counted(pieces_); }

  /// Enqueues a copy where they are not those of the last call.
  void update(CudaQueue& queue, std::span<const AdamwSegment> segments);
  const AdamwPiece* pieces() const { return pieces_; }
  int64_t count() const { return count_; }

 private:
  std::vector<AdamwSegment> segments_;
  AdamwPiece* pieces_ = nullptr;
  int64_t count_ = 0, capacity_ = 0;
};

}  // namespace keel
