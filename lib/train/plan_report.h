#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/kernels/common/context.h"
#include "keel/train/run_setup.h"

namespace keel {

/// What --plan tells about a run, found without training or allocating it.
struct TrainPlanReport {
  Json results;             ///< of the JSON report
  std::string text;         ///< the same for people
  bool fits = false;        ///< within train.memory_limit, or this machine's memory
  int64_t total_bytes = 0;  ///< expected peak of resident anonymous memory
  int64_t limit_bytes = 0;
  int64_t largest_micro_batch = 0;  ///< that fits, in sequences; 0: none
  int64_t checkpoint_bytes = 0;     ///< of one
  std::string data_text;            ///< how often the data is used: "1.02M tokens, 0.40 times the data's 2.55M"
  std::string disk_text;            ///< what checkpoints will take: "5 checkpoints of 12.3 MB: 61.5 MB"
};

/// `measure`: time the products for a moment (some 2 s) to estimate how long the run takes: its steps at 0.6 of the
/// products' rate, validations (forward passes, a third of the work) at the same, and checkpoints at 300 MB/s. Throws
/// Stopped on a signal.
KEEL_API TrainPlanReport plan_report(Context& ctx, const RunSetup& setup, bool measure);

/// Throws Error(memory) that names needed and available bytes and the largest micro-batch that fits, unless the plan
/// fits.
KEEL_API void require_fit(const TrainPlanReport& plan);

}  // namespace keel
