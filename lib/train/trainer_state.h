#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/checkpoint/checkpoint.h"

namespace keel {

/// What a checkpoint's trainer.json says besides weights and optimiser state.
struct TrainerState {
  int64_t step = 0;           ///< updates done
  int64_t tokens = 0;         ///< trained on
  int64_t data_position = 0;  ///< sequences taken
  int64_t batch_sequences = 0, micro_batch_sequences = 0, processes = 1;
  uint64_t seed = 0;
  double seconds = 0;  ///< sum of step times of the whole run, as the following
  double startup_seconds = 0, validate_seconds = 0, sample_seconds = 0, save_seconds = 0;
  bool validated = true;  ///< the validation after `step` is done, or none is due
  bool sampled = true;    ///< likewise the samples
  static constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();
  double loss = kAbsent, grad_norm = kAbsent;  ///< of the last step
  std::optional<double> val_loss;              ///< the last one
  std::optional<int64_t> val_step;             ///< the step that it followed
};

KEEL_API Json trainer_state_json(const TrainerState& state);

/// Of an opened checkpoint. Keys may be absent; a value of another type is Error(format) that names file and key.
KEEL_API TrainerState trainer_state(const Checkpoint& checkpoint);

}  // namespace keel
