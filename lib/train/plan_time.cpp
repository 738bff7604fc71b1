#include "keel/train/plan_time.h"

#include <algorithm>

#include "keel/model/flops.h"
#include "keel/model/parameters.h"

namespace keel {
namespace {

/// How often something happens that follows every `every`-th step (0: none) and the last.
double times_with_last(int64_t steps, int64_t every) {
  return static_cast<double>(every > 0 ? (steps + every - 1) / every : 1);
}

double all_flops_per_token(const TrainSettings& s) {
  return train_flops_per_token(s.model, s.sequence_length()) +
         recompute_flops_per_token(s.model, s.sequence_length(), s.recompute_segment);
}

/// Of training; validation is its forward pass alone.
TimeEstimate with_seconds_per_token(const RunSetup& setup, double seconds_per_token) {
  const TrainSettings& s = setup.settings;
  TimeEstimate time;
  time.train = seconds_per_token * static_cast<double>(s.steps) * static_cast<double>(s.tokens_per_step());
  const double passes = 3 * all_flops_per_token(s) / train_flops_per_token(s.model, s.sequence_length());
  if (setup.validation) {
    time.validate = times_with_last(s.steps, s.validate.every_steps) * seconds_per_token / passes *
                    static_cast<double>(validation_targets(s, *setup.validation));
  }
  double saves = times_with_last(s.steps, s.checkpoint.every_steps) + static_cast<double>(s.checkpoint.at.size());
  if (s.checkpoint.every_seconds > 0) saves += time.train / s.checkpoint.every_seconds;
  time.save = saves * static_cast<double>(kCheckpointArrays) * sizeof(float) *
              static_cast<double>(count_parameters(s.model).total) / kSaveBytesPerSecond;
  return time;
}

/// Bytes that a step moves at least.
double step_traffic(const TrainSettings& settings, const TrainMemory& memory) {
  const auto bytes = [&](MemoryKind kind) { return static_cast<double>(memory.arena.bytes(kind)); };
  const auto passes = static_cast<double>(settings.batch_sequences / memory.micro_batch_sequences);
  const double pass = 2 * (bytes(MemoryKind::weights) + bytes(MemoryKind::gradients) + bytes(MemoryKind::activations));
  const double update =
      2 * bytes(MemoryKind::weights) + bytes(MemoryKind::gradients) + 2 * bytes(MemoryKind::optimizer);
  return passes * pass + update;
}

/// How many there are, those that are computed again counted by their FLOPs.
double step_products(const TrainSettings& s, int64_t micro_batch_sequences) {
  double count = 0;
  for (const TrainingProduct& product : training_products(s, micro_batch_sequences)) {
    count += static_cast<double>(product.times);
  }
  return count * all_flops_per_token(s) / train_flops_per_token(s.model, s.sequence_length());
}

}  // namespace

TimeEstimate estimate_time(const RunSetup& setup, double product_rate) {
  return with_seconds_per_token(setup, all_flops_per_token(setup.settings) / (product_rate * kProductShare));
}

double estimate_seconds_per_token(const TrainSettings& s, const PlanDevice& device, const TrainMemory& memory) {
  const double computing =
      all_flops_per_token(s) / (device.product_flops_per_second(s.precision) * kAssumedUtilisation);
  const auto tokens = static_cast<double>(s.tokens_per_step());
  const double moving = step_traffic(s, memory) / tokens / device.memory_bytes_per_second;
  return std::max(computing, moving) + step_products(s, memory.micro_batch_sequences) * kAssumedProductSeconds / tokens;
}

TimeEstimate estimate_time(const RunSetup& setup, const PlanDevice& device, const TrainMemory& memory) {
  return with_seconds_per_token(setup, estimate_seconds_per_token(setup.settings, device, memory));
}

}  // namespace keel
