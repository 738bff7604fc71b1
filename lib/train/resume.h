#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/config.h"
#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/checkpoint/checkpoint.h"
#include "keel/train/run_setup.h"

namespace keel {

/// A setting that --override, or --steps, changed from a step on.
struct AppliedOverride {
  std::string key, before, after;
};

/// The run as its directory has it, for comparing.
struct EarlierRun {
  Json run_json;
  Config before;     ///< its config
  Config commanded;  ///< with the command on top but without overrides: differs from `before` in the length at most
  std::vector<AppliedOverride> overrides;  ///< of the command, a new length included
};

/// The config of a run that goes on: what its run.json says, then what the command says on top. `command` applies
/// config file, --set and flags to a config. Whatever differs from the run's own value is Error(config) that names
/// both, except
///   - the length of the run (train.steps and its like): see require_same_rates;
///   - `overrides`, "KEY=VALUE" of the groups optimizer, schedule, checkpoint, validate and of train.* that decide
///     neither the data nor the model.
struct ResumedConfig {
  Config config;
  EarlierRun earlier;
};
KEEL_API ResumedConfig resume_config(const JsonDocument& run_json, const std::function<void(Config&)>& command,
                                     const std::vector<std::string>& overrides);

/// The folder that the run started from, "" for none. Error(config) if the command names another (`init_path` not
/// empty).
KEEL_API std::string resumed_init(const EarlierRun& earlier, const std::string& init_path);

/// The checkpoint and the command must belong to one run: the same data (require_same_data), the same rates of the
/// finished steps (require_same_rates).
KEEL_API void require_same_run(const EarlierRun& earlier, const RunSetup& setup, const Checkpoint& checkpoint);

/// The micro-batch of a run that goes on. An automatic one stays what run.json says, as it decides the order of sums,
/// unless this command overrides what it follows from (train.memory_limit, train.micro_batch_sequences). Error(format)
/// if run.json's is impossible.
KEEL_API int64_t resumed_micro_batch(const EarlierRun& earlier, const TrainSettings& settings);

/// Applies one --override to a config. Error(config) that names the whole argument, also for a key that can't change
/// within a run.
KEEL_API void apply_override(Config& config, const std::string& assignment);

/// `overrides` of run.json when the run goes on after step `step`: the earlier ones (those from a later step on count
/// from `step` now) and those of this command.
KEEL_API Json recorded_overrides(const EarlierRun& earlier, int64_t step);

/// Error(config) that names both lengths, unless steps 0 .. done - 1 have the same learning rates in both settings.
KEEL_API void require_same_rates(const TrainSettings& before, const TrainSettings& now, int64_t done);

/// run.json of a run:
/// {"schema":"keel.run/1","version","created","config","init","resolved":{..},"data":[..],"overrides":[..]}.
KEEL_API Json run_json(const RunSetup& setup, const std::string& created, const Json& overrides);

}  // namespace keel
