#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "keel/data/batch.h"
#include "keel/kernels/memory/memory.h"
#include "keel/model/flat_batch.h"

namespace keel {

/// Micro-batches on their way to the device. On a GPU they leave from two places in turn, so that the host reads one from the
/// shards while the device works on the one before: it is at most two ahead of the device.
class BatchFeed {
 public:
  /// Where batches lie on the device: tokens, targets, positions and weights [N] of the largest, cu_seqlens
  /// [reader.cu_seqlens_capacity()].
  struct Places {
    View<int32_t, 1> tokens, targets, positions;
    View<float, 1> weights;
    View<int32_t, 1> cu_seqlens;
  };
  BatchFeed(Context& ctx, const Places& places);

  /// Enqueues those sequences of the reader, in the place of the last ones. Errors as BatchReader::read gives them.
  FlatBatch load(const BatchReader& reader, std::span<const SequenceRef> sequences);

 private:
  /// The host's copy.
  struct Staged {
    Staged(Context& ctx, const Places& places);
    BatchBuffers buffers(int64_t N) const;
    PinnedMemory<int32_t> tokens, targets, positions, cu_seqlens;
    PinnedMemory<float> weights;
    Mark sent;
  };

  template <class T>
  View<T, 1> enqueue(const PinnedMemory<T>& from, View<T, 1> place, int64_t count) {
    const View<T, 1> to = place.slice(0, count);
    enqueue_copy_to_device(ctx_, from, to);
    return to;
  }

  Context& ctx_;
  Places places_;
  std::vector<std::unique_ptr<Staged>> staged_;
  size_t next_ = 0;
};

}  // namespace keel
