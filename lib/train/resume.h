#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/config.h"
#include "keel/base/error.h"
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
  std::vector<AppliedOverride> overrides;  ///< of the command, a new length or place of the data included
  std::optional<Error> moved;              ///< the data is named elsewhere: thrown unless it is the same there
};

/// The config of a run that goes on: what its run.json says, then what the command says on top. `command` applies
/// config file, --set and flags to a config. Whatever differs from the run's own value is Error(config) that names
/// both, except
///   - the length of the run (train.steps and its like): see require_same_rates;
///   - data.path and data.val_path, where the data there is the run's (require_same_run);
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

/// The checkpoint and the command must belong to one run: the same data as run.json has it (require_same_data), the
/// same tokenizer, the same rates of the finished steps (require_same_rates), at least as many steps as are done.
/// Without a checkpoint the run starts again and only data that is named elsewhere must be the same.
KEEL_API void require_same_run(const EarlierRun& earlier, const RunSetup& setup, const Checkpoint* checkpoint);

/// The micro-batch of a run that goes on. An automatic one stays what run.json says, as it decides the order of sums,
/// unless this command overrides what it follows from (train.memory_limit, train.micro_batch_sequences). Error(format)
/// if run.json's does not divide the batch.
KEEL_API int64_t resumed_micro_batch(const EarlierRun& earlier, const TrainSettings& settings);

/// Applies one --override to a config. Error(config) that names the whole argument, also for a key that can't change
/// within a run.
KEEL_API void apply_override(Config& config, const std::string& assignment);

/// `overrides` of run.json when the run goes on after step `step`: the earlier ones (those from a later step on count
/// from `step` now) and those of this command.
KEEL_API Json recorded_overrides(const EarlierRun& earlier, int64_t step);

/// Error(config) that names both lengths, unless steps 0 .. done - 1 have the same learning rates in both settings.
/// `where` is where the new length was given.
KEEL_API void require_same_rates(const TrainSettings& before, const TrainSettings& now, int64_t done,
                                 const std::string& where);

/// What the run computed on until now, as run.json has it: of its last resume, or its start; "" of a run that noted none.
KEEL_API std::string recorded_device(const EarlierRun& earlier);

/// `resumes` of run.json when the run goes on after step `step` once more: [{"from_step", "time", "device"}].
KEEL_API Json recorded_resumes(const EarlierRun& earlier, int64_t step, const std::string& device);

/// What a run's directory and its report tell of its past, as it goes on now.
struct RunHistory {
  std::string created;
  std::string device;  ///< that it began on, as Context::name says; "": unknown
  Json overrides = Json::array();
  Json resumes = Json::array();
};

/// run.json of a run:
/// {"schema":"keel.run/1","version","created","device","config","init","resolved":{..},"data":[..],"tokenizer_sha256",
///  "overrides":[..],"resumes":[..]}.
KEEL_API Json run_json(const RunSetup& setup, const RunHistory& history);

}  // namespace keel
