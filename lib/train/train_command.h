#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/config.h"
#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/base/progress.h"
#include "keel/kernels/common/context.h"
#include "keel/train/plan_report.h"
#include "keel/train/run_outcome.h"
#include "keel/train/step_profile.h"
#include "keel/train/text_codec.h"

namespace keel {

/// What keel-train is asked for, whoever asks: the command line, or a program that makes many runs.
struct TrainCommand {
  std::function<void(Config&)> configure;  ///< applies config file, --set and flags
  std::string out;                         ///< the run directory
  std::string init_path;                   ///< model folder to start from; "": values are drawn from the seed
  bool resume = false;                     ///< go on from the newest checkpoint where there is one
  bool force = false;                      ///< replace a run that is there
  std::vector<std::string> overrides;      ///< "KEY=VALUE", with `resume`: from here on
  std::string config_path;                 ///< the file that `configure` reads, "" for none: no report goes there
  std::string report_path;                 ///< a report besides RUN/report.json; "-" is stdout, "" none
  std::vector<std::string> arguments;      ///< `command` of the reports, the program first
  OpenTextCodec open_codec = {};           ///< for validate.sample; without it a run with prompts is refused
};

struct TrainResult {
  std::optional<RunOutcome> outcome;  ///< absent: the run was finished before, and nothing was changed
  std::string summary;                ///< a line for people, without a newline; "" without an outcome
  int exit_code = 0;
};

/// The config that the command comes to, with what the run directory says when it goes on; for --print-config. Looks at
/// no data.
KEEL_API Config command_config(const TrainCommand& command);

/// Trains. Everything that can be checked is checked before the run directory appears: the report's path, config, data,
/// --init, memory, disk. An existing run is Error(usage) without `resume` or `force`. Other errors as prepare_run,
/// resume_config, require_fit and run_training give them.
KEEL_API TrainResult train(Context& ctx, const TrainCommand& command, Progress& progress);

/// What --plan tells of the same run, on this machine's CPU or, with a device, on such a GPU; writes the report that is
/// asked for and nothing else. `out` may be empty.
KEEL_API TrainPlanReport plan(Context& ctx, const TrainCommand& command, const PlanDevice* device = nullptr);

/// What --profile tells: `steps` steps of the same run from its beginning, by operation (step_profile.h). Checks what
/// train() checks but the run directory, of which it needs none; writes the report that is asked for and nothing else.
/// Error(device) on a GPU, whose work is only enqueued where it would be timed.
KEEL_API StepProfile profile(Context& ctx, const TrainCommand& command, int64_t steps, Progress& progress);

}  // namespace keel
