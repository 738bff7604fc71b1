#pragma once

#include <memory>

#include "keel/base/export.h"
#include "keel/base/progress.h"
#include "keel/checkpoint/checkpoint.h"
#include "keel/kernels/common/context.h"
#include "keel/train/log_schedule.h"
#include "keel/train/run_directory.h"
#include "keel/train/run_outcome.h"
#include "keel/train/run_setup.h"
#include "keel/train/trainer.h"

namespace keel {

/// A trainer with the values that the run begins with: of the checkpoint with its optimiser state, of --init, or drawn
/// from the seed. Allocates everything; errors as TensorSet::read gives them, Error(format) for a checkpoint without
/// optimiser state. `setup` outlives it.
KEEL_API std::unique_ptr<Trainer> make_trainer(Context& ctx, const RunSetup& setup, const Checkpoint* resume);

/// Where a process's part of a run begins.
struct RunStart {
  LogSchedule schedule;                ///< which steps are logged, validated and sampled
  const Checkpoint* resume = nullptr;  ///< the one that `trainer` was made from; null: step 0
  double product_rate = 0;     ///< FLOP/s of the matrix products alone (throughput.h), for the utilisation; 0: unknown
  double startup_seconds = 0;  ///< of this process so far; train.time_limit counts from its start
};

/// Trains to the end of the settings, or to a signal, a time limit or a loss that is not finite: writes metrics, events
/// and checkpoints into `directory`. At every end, also when data, validation or samples raise an error, the newest
/// checkpoint is that of the last finished step. Warns when a completed run's loss is more than 1 nat above
/// ln(vocab_size), that of a model that knows nothing.
KEEL_API RunOutcome run_training(const RunSetup& setup, Trainer& trainer, RunDirectory& directory,
                                 const RunStart& start, Progress& progress);

}  // namespace keel
