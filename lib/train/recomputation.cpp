#include "keel/train/recomputation.h"

#include <algorithm>
#include <cmath>

#include "keel/base/signals.h"
#include "keel/model/flops.h"

namespace keel {
namespace {

TrainMemory plan_with_blocks(const TrainSettings& run, int64_t micro_batch_sequences, int64_t blocks) {
  throw_if_stopped();
  TrainSettings settings = run;
  settings.recompute_segment = kSublayersPerBlock * blocks;
  return plan_training(settings, micro_batch_sequences);
}

/// K of the every:K that takes least: a K blocks and b M / K streams, with K = sqrt(b M / a).
int64_t least_blocks(const TrainSettings& settings, int64_t micro_batch_sequences) {
  const int64_t M = settings.model.num_hidden_layers;
  const auto activations = [&](int64_t blocks) {
    return plan_with_blocks(settings, micro_batch_sequences, blocks).arena.bytes(MemoryKind::activations);
  };
  const double stream = static_cast<double>(micro_batch_sequences * settings.sequence_length()) *
                        static_cast<double>(settings.model.hidden_size) * sizeof(float);
  const double streams = stream * static_cast<double>(M);
  const double block = std::max(stream, static_cast<double>(activations(1)) - streams);
  const int64_t near = std::clamp<int64_t>(std::llround(std::sqrt(streams / block)), 1, M);
  // K = 1 holds no stream inside its segment.
  return activations(1) <= activations(near) ? 1 : near;
}

}  // namespace

int64_t automatic_recompute_segment(const TrainSettings& settings, int64_t micro_batch_sequences, int64_t limit_bytes,
                                    const EstimateMemory& estimate) {
  const int64_t M = settings.model.num_hidden_layers;
  const int64_t least = least_blocks(settings, micro_batch_sequences);
  const TrainMemory smallest = plan_with_blocks(settings, micro_batch_sequences, least);
  // The modes differ in the arena alone.
  const int64_t others = estimate(smallest).total_bytes() - smallest.arena.total_bytes();
  const auto fits = [&](int64_t blocks) {
    const int64_t arena = plan_with_blocks(settings, micro_batch_sequences, blocks).arena.total_bytes();
    return arena + others <= limit_bytes;
  };
  if (fits(M)) return 0;
  int64_t fitting = least, too_large = M;
  while (too_large - fitting > 1) {
    const int64_t middle = fitting + (too_large - fitting) / 2;
    (fits(middle) ? fitting : too_large) = middle;
  }
  return kSublayersPerBlock * fitting;
}

TrainSettings with_recomputation(const TrainSettings& run, int64_t micro_batch_sequences, int64_t limit_bytes,
                                 const EstimateMemory& estimate) {
  TrainSettings settings = run;
  if (run.recompute_is_auto) {
    settings.recompute_segment = automatic_recompute_segment(run, micro_batch_sequences, limit_bytes, estimate);
  }
  return settings;
}

double nominal_step_cost(const TrainSettings& s, int64_t micro_batch_sequences) {
  const double again = recompute_flops_per_token(s.model, s.sequence_length(), s.recompute_segment);
  const double flops = train_flops_per_token(s.model, s.sequence_length()) + again;
  // Weights are read by the pass forward, the one back and what is computed again, gradients read and written.
  const double times = again > 0 ? 5 : 4;
  const double bytes = times * sizeof(float) * static_cast<double>(count_parameters(s.model).in_products);
  const auto passes = static_cast<double>(s.batch_sequences / micro_batch_sequences);
  return flops * static_cast<double>(s.tokens_per_step()) + passes * bytes * kFlopsPerByte;
}

}  // namespace keel
