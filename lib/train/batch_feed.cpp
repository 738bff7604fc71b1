#include "keel/train/batch_feed.h"

namespace keel {

BatchFeed::Staged::Staged(Context& ctx, const Places& places)
    : tokens(ctx, places.tokens.size()),
      targets(ctx, places.targets.size()),
      positions(ctx, places.positions.size()),
      cu_seqlens(ctx, places.cu_seqlens.size()),
      weights(ctx, places.weights.size()),
      sent(ctx) {}

BatchBuffers BatchFeed::Staged::buffers(int64_t N) const {
  return {.tokens = tokens.first(N),
          .targets = targets.first(N),
          .positions = positions.first(N),
          .weights = weights.first(N),
          .cu_seqlens = cu_seqlens.first(cu_seqlens.count())};
}

BatchFeed::BatchFeed(Context& ctx, const Places& places) : ctx_(ctx), places_(places) {
  const int count = ctx.device() == Device::cpu ? 1 : 2;
  for (int i = 0; i < count; ++i) staged_.push_back(std::make_unique<Staged>(ctx, places));
}

FlatBatch BatchFeed::load(const BatchReader& reader, std::span<const SequenceRef> sequences) {
  Staged& staged = *staged_[next_];
  next_ = (next_ + 1) % staged_.size();
  const int64_t N = static_cast<int64_t>(sequences.size()) * reader.options().sequence_length;
  staged.sent.wait();
  const BatchInfo info = reader.read(sequences, staged.buffers(N));
  const FlatBatch batch{.tokens = enqueue(staged.tokens, places_.tokens, N),
                        .targets = enqueue(staged.targets, places_.targets, N),
                        .positions = enqueue(staged.positions, places_.positions, N),
                        .weights = enqueue(staged.weights, places_.weights, N),
                        .cu_seqlens = enqueue(staged.cu_seqlens, places_.cu_seqlens, info.segments + 1)};
  staged.sent.set();
  return batch;
}

}  // namespace keel
