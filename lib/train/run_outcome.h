#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/train/settings.h"

namespace keel {

inline constexpr int kExitTimeLimit = 7;

enum class RunStatus { completed, interrupted, time_limit, diverged };

/// What a status is called, in one place.
struct RunStatusNames {
  const char* event;   ///< in the `end` line of events.jsonl
  const char* report;  ///< results.status of the report
  const char* words;   ///< for people
  bool goes_on;        ///< --resume continues such a run
  int exit_code;       ///< of an interrupted run the signal is added
};
KEEL_API const RunStatusNames& names_of(RunStatus status);

/// How a run ended.
struct RunOutcome {
  RunStatus status = RunStatus::completed;
  int64_t step = 0;       ///< updates done
  int signal = 0;         ///< that interrupted it
  double final_loss = 0;  ///< of the last step; NaN before the first and where no target counted
  double grad_norm = 0;
  std::optional<double> val_loss;      ///< the last one
  std::optional<int64_t> val_step;     ///< the step that it followed
  std::optional<double> unigram_loss;  ///< of the same tokens (validate.unigram)
  /// Of the whole run, all its processes: sum of step times, and what is not in it. Steps that were done again because
  /// a process was killed count once.
  double train_seconds = 0, startup_seconds = 0, validate_seconds = 0, sample_seconds = 0, save_seconds = 0;
  int64_t peak_memory_bytes = 0;           ///< resident anonymous memory, of this process
  double product_rate = 0;                 ///< FLOP/s of the matrix products alone; 0: unknown
  std::optional<int64_t> non_finite_step;  ///< 1-based step whose loss or gradient was not finite
  double non_finite_learning_rate = 0;
  std::vector<std::string> checkpoints;  ///< that exist at the end

  /// 0; 128 + signal; 7; 5.
  KEEL_API int exit_code() const;
};

/// `results` of the report.
KEEL_API Json outcome_json(const RunOutcome& outcome, const TrainSettings& settings);

/// How people are shown a loss: fmt's format with 4 decimals, from 1e5 on with 4 digits.
KEEL_API const char* loss_format(double loss);
KEEL_API std::string loss_text(double loss);

/// The same in a sentence: "RUN: completed after 300 of 300 steps, loss 3.2140".
KEEL_API std::string outcome_text(const RunOutcome& outcome, const TrainSettings& settings, const std::string& run);

}  // namespace keel
