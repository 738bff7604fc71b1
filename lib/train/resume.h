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

/// A setting that --override changed, from a step on.
struct AppliedOverride {
  std::string key, before, after;
};

/// The config of a run that goes on: what its run.json says, then what the command says on top. `command` applies
/// config file, --set and flags to a config. Whatever differs from the run's own value is Error(config) that names
/// both, except
///   - the length of the run (train.steps and its like): see require_same_rates;
///   - `overrides`, "KEY=VALUE" of the groups optimizer, schedule, checkpoint, validate and of train.* that decide
///     neither the data nor the model.
struct ResumedConfig {
  Config config;
  Config before;     ///< as the run had it
  Config commanded;  ///< `config` without the overrides: differs from `before` in the length at most
  std::vector<AppliedOverride> overrides;
};
KEEL_API ResumedConfig resume_config(const JsonDocument& run_json, const std::function<void(Config&)>& command,
                                     const std::vector<std::string>& overrides);

/// Error(config) that names both lengths, unless steps 0 .. done - 1 have the same learning rates in both settings.
KEEL_API void require_same_rates(const TrainSettings& before, const TrainSettings& now, int64_t done);

/// run.json of a run:
/// {"schema":"keel.run/1","version","created","config","init","resolved":{..},"data":[..],"overrides":[..]}.
KEEL_API Json run_json(const RunSetup& setup, const std::string& created, const Json& overrides);

}  // namespace keel
