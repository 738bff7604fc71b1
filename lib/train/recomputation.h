#pragma once

#include <cstdint>

#include "keel/base/export.h"
#include "keel/train/train_memory.h"

namespace keel {

/// The segment (TrainSettings::recompute_segment) that train.recompute=auto stands for with this micro-batch: of none, block
/// and every:K the one that computes least again, and so takes least time, among those that take at most `limit_bytes`;
/// if none does, the one that takes least. Not branch: it keeps more than block and computes more again.
///                                                                        Chen et al. 2016, arXiv:1604.06174
/// Every mode gives the same bits, so that the choice may follow from the machine. Throws Stopped on a signal.
KEEL_API int64_t automatic_recompute_segment(const TrainSettings& settings, int64_t micro_batch_sequences,
                                             int64_t limit_bytes, const EstimateMemory& estimate);

/// The settings of a run with this micro-batch: with train.recompute=auto the mode above.
KEEL_API TrainSettings with_recomputation(const TrainSettings& settings, int64_t micro_batch_sequences,
                                          int64_t limit_bytes, const EstimateMemory& estimate);

/// What passes over a model's parameters cost beside its products, counted in floating-point operations: a byte that
/// goes to or from memory takes the time of about so many on CPUs (two cores: 225 GFLOP/s, 25 GB/s).
inline constexpr double kFlopsPerByte = 9;
/// FLOPs of a training step with a byte of weights and gradients as kFlopsPerByte: a measure of time that is the same on
/// every machine, to compare micro-batches and modes by.
KEEL_API double nominal_step_cost(const TrainSettings& settings, int64_t micro_batch_sequences);

}  // namespace keel
