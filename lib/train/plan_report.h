#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/kernels/common/context.h"
#include "keel/train/plan_devices.h"
#include "keel/train/run_setup.h"

namespace keel {

/// What --plan tells about a run, found without training or allocating it.
struct TrainPlanReport {
  Json results;             ///< of the JSON report
  std::string text;         ///< the same for people
  bool fits = false;        ///< within train.memory_limit and the device's memory
  int64_t total_bytes = 0;  ///< expected peak: of resident anonymous memory, or of the GPU's
  int64_t limit_bytes = 0;
  int64_t largest_micro_batch = 0;  ///< that fits, in sequences; 0: none
  std::string what_fits;            ///< what would help a run that does not fit
  int64_t checkpoint_bytes = 0;     ///< of one
  std::string data_text;            ///< how often the data is used: "1.02M tokens, 0.40 times the data's 2.55M"
  std::string disk_text;            ///< what checkpoints will take: "5 checkpoints of 12.3 MB: 61.5 MB"
};

/// Sets the mode that train.recompute=auto stands for on this machine's CPU or such a GPU (recomputation.h); nothing for
/// other modes. Before anything else is asked of the setup.
KEEL_API void choose_recomputation(Context& ctx, RunSetup& setup);
KEEL_API void choose_recomputation(const PlanDevice& device, RunSetup& setup);

/// For a run on this machine's CPU. `measure`: time the products for a moment (some 2 s) to estimate how long the run
/// takes (plan_time.h). Throws Stopped on a signal.
KEEL_API TrainPlanReport plan_report(Context& ctx, const RunSetup& setup, bool measure);

/// For a run on such a GPU, wherever it is: nothing is measured or allocated here.
KEEL_API TrainPlanReport plan_report(const PlanDevice& device, const RunSetup& setup);

/// Throws Error(memory) that names needed and available bytes and the largest micro-batch that fits, or what else would
/// help, unless the plan fits.
KEEL_API void require_fit(const TrainPlanReport& plan);

}  // namespace keel
