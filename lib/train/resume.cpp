#include "keel/train/resume.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/version.h"
#include "keel/train/data_identity.h"

namespace keel {
namespace {

constexpr std::array kLengths = {"train.steps", "train.tokens", "train.flops", "train.tokens_per_parameter"};

bool is_length(const std::string& key) {
  return std::find(kLengths.begin(), kLengths.end(), key) != kLengths.end();
}

std::string key_of(const std::string& assignment) {
  return assignment.substr(0, assignment.find('='));
}

bool may_override(const std::string& key) {
  constexpr std::array kGroups = {"optimizer.", "schedule.", "checkpoint.", "validate."};
  constexpr std::array kKeys = {"train.log_every", "train.time_limit", "train.memory_limit",
                                "train.micro_batch_sequences"};
  return is_length(key) ||
         std::any_of(kGroups.begin(), kGroups.end(), [&](const char* g) { return key.starts_with(g); }) ||
         std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

bool same_path(const std::string& a, const std::string& b) {
  std::error_code failed;
  return std::filesystem::equivalent(a, b, failed) && !failed;
}

/// The same data under another spelling of its path is no conflict.
bool names_same_path(const ConfigDifference& difference, const Config& before, const Config& now) {
  if (difference.key != "data.path" && difference.key != "data.val_path") return false;
  if (!before.has(difference.key) || !now.has(difference.key)) return false;
  const std::string a = before.text(difference.key), b = now.text(difference.key);
  return same_path(a, b) || (same_path(a + ".bin", b + ".bin"));
}

/// The command still says what the run had before an earlier --override: that is the same command, not a conflict.
bool was_overridden(const JsonDocument& run, const ConfigDifference& difference) {
  for (const Json& entry : run.root()["overrides"]) {
    if (entry.value("key", Json()) == difference.key && entry.value("before", Json()) == difference.after) return true;
  }
  return false;
}

/// --steps is a wish, not what an earlier command happened to say, unless an --override beside it says another.
bool asks_for_length(const std::string& key, const Config& command, const std::vector<std::string>& overrides) {
  const bool overridden = std::any_of(overrides.begin(), overrides.end(),
                                      [](const std::string& assignment) { return is_length(key_of(assignment)); });
  return is_length(key) && command.origin(key).layer == ConfigLayer::flag && !overridden;
}

/// A length given on the command replaces the run's, whichever key either uses.
void clear_other_lengths(Config& config, const Config& command) {
  for (const char* given : kLengths) {
    if (!command.is_given(given)) continue;
    for (const char* other : kLengths) {
      if (std::string(other) != given && !command.is_given(other)) {
        config.apply_value(other, Json(), {.layer = ConfigLayer::flag, .name = "the length given"});
      }
    }
  }
}

}  // namespace

ResumedConfig resume_config(const JsonDocument& document, const std::function<void(Config&)>& command,
                            const std::vector<std::string>& overrides) {
  Config before(train_schema());
  before.apply(document, ConfigLayer::recipe, "/config");
  Config now = before;
  command(now);
  Config alone(train_schema());
  command(alone);
  clear_other_lengths(now, alone);
  for (const ConfigDifference& d : differences(before, now)) {
    if (was_overridden(document, d) && !asks_for_length(d.key, alone, overrides)) {
      now.apply_value(d.key, before.has(d.key) ? before.value(d.key) : Json(),
                      {.layer = ConfigLayer::flag, .name = "--override"});
      continue;
    }
    if (is_length(d.key) || names_same_path(d, before, now)) continue;
    throw now.error(d.key, d.key + " is " + d.before + " in the run and " + d.after + " on the command line",
                    may_override(d.key) ? "leave it out, or use --override " + d.key + "=... to change it from here on"
                                        : "leave it out: it can't change within a run");
  }
  const Config commanded = now;
  for (const std::string& assignment : overrides) apply_override(now, assignment);
  ResumedConfig result{
      .config = now,
      .earlier = {.run_json = document.root(), .before = before, .commanded = commanded, .overrides = {}}};
  for (const ConfigDifference& d : differences(before, now)) {
    if (!names_same_path(d, before, now)) result.earlier.overrides.push_back({d.key, d.before, d.after});
  }
  return result;
}

std::string resumed_init(const EarlierRun& earlier, const std::string& init_path) {
  const Json init = earlier.run_json.value("init", Json());
  std::string before = init.is_string() ? init.get<std::string>() : "";
  if (!init_path.empty() && init_path != before) {
    throw Error(ErrorKind::config, "the run started from '" + before + "', not '" + init_path + "'", "--init",
                "leave it out");
  }
  return before;
}

void require_same_run(const EarlierRun& earlier, const RunSetup& setup, const Checkpoint& checkpoint) {
  if (checkpoint.trainer.contains("data")) require_same_data(earlier.run_json["data"], setup.identity);
  TrainFacts facts{
      .data_vocab_size = setup.settings.model.vocab_size, .data_eod_id = setup.settings.data.eod_id, .init_model = {}};
  if (!setup.init_path.empty()) facts.init_model = setup.settings.model;
  require_same_rates(resolve_settings(earlier.before, facts), resolve_settings(earlier.commanded, facts),
                     checkpoint.step);
}

int64_t resumed_micro_batch(const EarlierRun& earlier, const TrainSettings& settings) {
  if (!settings.micro_batch_is_auto) return settings.micro_batch_sequences;
  const Json recorded = earlier.run_json["resolved"].value("micro_batch_sequences", Json());
  if (!recorded.is_number_integer() || recorded < 1 || settings.batch_sequences % recorded.get<int64_t>() != 0) {
    throw Error(ErrorKind::format,
                fmt::format("micro_batch_sequences {} does not divide a batch of {}", json_text(recorded),
                            settings.batch_sequences),
                "run.json");
  }
  const bool is_new = std::any_of(earlier.overrides.begin(), earlier.overrides.end(), [](const AppliedOverride& o) {
    return o.key == "train.memory_limit" || o.key == "train.micro_batch_sequences";
  });
  return is_new ? settings.micro_batch_sequences : recorded.get<int64_t>();
}

void apply_override(Config& config, const std::string& assignment) {
  const std::string where = "--override " + assignment;
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorKind::config, "--override takes KEY=VALUE", where,
                "as in --override optimizer.learning_rate=1e-4");
  }
  const std::string key = assignment.substr(0, equals);
  train_schema().at(key, where);
  if (!may_override(key)) throw Error(ErrorKind::config, key + " can't change within a run", where);
  config.apply_flag(key, assignment.substr(equals + 1), where);
}

Json recorded_overrides(const EarlierRun& earlier, int64_t step) {
  Json list = earlier.run_json["overrides"];
  for (Json& entry : list) {
    const Json from = entry.is_object() ? entry.value("from_step", Json()) : Json();
    if (!from.is_number_integer()) throw Error(ErrorKind::format, "an override without from_step", "run.json");
    entry["from_step"] = std::min(from.get<int64_t>(), step);
  }
  for (const AppliedOverride& o : earlier.overrides) {
    list.push_back({{"from_step", step}, {"key", o.key}, {"before", o.before}, {"after", o.after}});
  }
  return list;
}

void require_same_rates(const TrainSettings& before, const TrainSettings& now, int64_t done) {
  if (before.steps == now.steps) return;
  for (int64_t t = 0; t < done; ++t) {
    for (int c = 0; c < kParameterClasses; ++c) {
      const ClassSettings &a = before.optimizer.classes[c], &b = now.optimizer.classes[c];
      if (learning_rate(before.schedule, a.learning_rate, a.final_learning_rate, t) ==
          learning_rate(now.schedule, b.learning_rate, b.final_learning_rate, t)) {
        continue;
      }
      throw Error(ErrorKind::config,
                  "the run is " + std::to_string(before.steps) + " steps long, not " + std::to_string(now.steps) +
                      ": with this schedule the learning rates of the " + std::to_string(done) +
                      " finished steps would have been others",
                  "--steps",
                  "--override train.steps=" + std::to_string(now.steps) + " changes the length from here on");
    }
  }
}

Json run_json(const RunSetup& setup, const std::string& created, const Json& overrides) {
  const TrainSettings& s = setup.settings;
  Json run;
  run["schema"] = "keel.run/1";
  run["version"] = version();
  run["created"] = created;
  run["config"] = setup.config.to_json();
  run["init"] = setup.init_path.empty() ? Json() : Json(setup.init_path);
  Json& resolved = run["resolved"];
  resolved["steps"] = s.steps;
  resolved["batch_sequences"] = s.batch_sequences;
  resolved["micro_batch_sequences"] = s.micro_batch_sequences;
  resolved["tokens_per_step"] = s.tokens_per_step();
  resolved["vocab_size"] = s.model.vocab_size;
  resolved["parameters"] = count_parameters(s.model).total;
  run["data"] = setup.identity;
  run["overrides"] = overrides;
  return run;
}

}  // namespace keel
