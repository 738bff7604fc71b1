#pragma once

#include "keel/kernels/memory/memory.h"
#include "keel/model/flat_batch.h"

namespace keel {

/// A batch of the host as operations take it: on a GPU a copy in memory that is kept for the next one.
class BatchCopy {
 public:
  explicit BatchCopy(Context& ctx)
      : tokens_(ctx),
        targets_(ctx),
        positions_(ctx),
        cu_seqlens_(ctx),
        cache_rows_(ctx),
        page_table_(ctx),
        kv_lengths_(ctx),
        weights_(ctx) {}

  /// Valid until the next call; on a CPU as long as the host's arrays.
  FlatBatch of(const HostBatch& batch) {
    return {.tokens = tokens_.of(batch.tokens),
            .targets = targets_.of(batch.targets),
            .positions = positions_.of(batch.positions),
            .weights = weights_.of(batch.weights),
            .cu_seqlens = cu_seqlens_.of(batch.cu_seqlens),
            .cache_rows = cache_rows_.of(batch.cache_rows),
            .page_table = page_table_.of(batch.page_table),
            .kv_lengths = kv_lengths_.of(batch.kv_lengths)};
  }

 private:
  DeviceCopy<int32_t> tokens_, targets_, positions_, cu_seqlens_, cache_rows_, page_table_, kv_lengths_;
  DeviceCopy<float> weights_;
};

}  // namespace keel
