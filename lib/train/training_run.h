#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/base/progress.h"
#include "keel/checkpoint/checkpoint.h"
#include "keel/kernels/common/context.h"
#include "keel/train/run_directory.h"
#include "keel/train/run_setup.h"

namespace keel {

inline constexpr int kExitTimeLimit = 7;

enum class RunStatus { completed, interrupted, time_limit, diverged };

/// How a run ended.
struct RunOutcome {
  RunStatus status = RunStatus::completed;
  int64_t step = 0;       ///< updates done
  int signal = 0;         ///< that interrupted it
  double final_loss = 0;  ///< of the last step; NaN before the first
  double grad_norm = 0;
  std::optional<double> val_loss;                 ///< the last one
  std::optional<double> unigram_loss;             ///< of the same tokens (validate.unigram)
  double train_seconds = 0;                       ///< sum of step times, earlier parts of the run included
  double validate_seconds = 0, save_seconds = 0;  ///< of this process
  int64_t steps_here = 0;                         ///< of this process
  int64_t peak_memory_bytes = 0;                  ///< resident anonymous memory
  double product_rate = 0;                        ///< FLOP/s of the matrix products alone; 0: unknown
  std::optional<int64_t> non_finite_step;         ///< 1-based step whose loss or gradient was not finite
  double non_finite_learning_rate = 0;
  std::vector<std::string> checkpoints;  ///< that exist at the end

  /// 0; 128 + signal; 7; 5.
  KEEL_API int exit_code() const;
};

struct RunOptions {
  std::optional<Checkpoint> resume;  ///< where it goes on; absent: from the start
  double product_rate = 0;  ///< FLOP/s of the matrix products alone (throughput.h), for the utilisation; 0: unknown
};

/// Trains to the end of the settings, or to a signal, a time limit or a loss that is not finite: writes metrics, events
/// and checkpoints into `directory`. At every end the newest checkpoint is that of the last finished step.
KEEL_API RunOutcome run_training(Context& ctx, const RunSetup& setup, RunDirectory& directory,
                                 const RunOptions& options, Progress& progress);

/// `results` of the report.
KEEL_API Json outcome_json(const RunOutcome& outcome, const RunSetup& setup);

}  // namespace keel
