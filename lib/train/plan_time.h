#pragma once

#include "keel/base/export.h"
#include "keel/train/plan_devices.h"
#include "keel/train/run_setup.h"
#include "keel/train/train_memory.h"

namespace keel {

/// Seconds that a run is expected to take.
struct TimeEstimate {
  double train = 0, validate = 0, save = 0;
  double total() const { return train + validate + save; }
};

/// Checkpoints: hashing, writing and syncing.
inline constexpr double kSaveBytesPerSecond = 300e6;
/// A checkpoint's arrays: weights and AdamW's two averages.
inline constexpr int64_t kCheckpointArrays = 3;

/// On this machine, whose matrix products alone run at `product_rate` FLOP/s: they are taken to be kProductShare of a
/// step's time.
inline constexpr double kProductShare = 0.7;
KEEL_API TimeEstimate estimate_time(const RunSetup& setup, double product_rate);

/// On a GPU: steps run at kAssumedUtilisation of its peak in the run's precision, and take at least what its
/// memory needs to hand over weights, gradients, optimiser state and activations once each way. To either comes
/// kAssumedProductSeconds for each product of each micro-batch, whatever its size, as it and the small operations beside
/// it begin and end. Assumed, not measured.
inline constexpr double kAssumedUtilisation = 0.5;
inline constexpr double kAssumedProductSeconds = 4e-6;
KEEL_API double estimate_seconds_per_token(const TrainSettings& settings, const PlanDevice& device,
                                           const TrainMemory& memory);
KEEL_API TimeEstimate estimate_time(const RunSetup& setup, const PlanDevice& device, const TrainMemory& memory);

}  // namespace keel
