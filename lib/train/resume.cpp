#include "keel/train/resume.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/version.h"
#include "keel/train/data_identity.h"

namespace keel {
namespace {

std::string key_of(const std::string& assignment) {
  return assignment.substr(0, assignment.find('='));
}

bool may_override(const std::string& key) {
  constexpr std::array kGroups = {"optimizer.", "schedule.", "checkpoint.", "validate."};
  constexpr std::array kKeys = {"train.log_every",    "train.profile_every",         "train.time_limit",
                                "train.memory_limit", "train.micro_batch_sequences", "train.recompute",
                                "train.precision"};
  return is_length(key) ||
         std::any_of(kGroups.begin(), kGroups.end(), [&](const char* g) { return key.starts_with(g); }) ||
         std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

/// The same place, also where nothing is there any more.
bool same_path(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (fs::equivalent(a, b, failed) && !failed) return true;
  const auto plain = [&](const std::string& path) {
    const fs::path whole = fs::weakly_canonical(fs::absolute(path, failed), failed);
    return whole.has_filename() ? whole : whole.parent_path();  // "a/" is "a"
  };
  return plain(a) == plain(b);
}

bool is_place_of_data(const std::string& key) {
  return key == "data.path" || key == "data.val_path";
}

/// The same data under another spelling of its path is no conflict.
bool names_same_path(const ConfigDifference& difference, const Config& before, const Config& now) {
  if (!is_place_of_data(difference.key) || !before.has(difference.key) || !now.has(difference.key)) return false;
  const std::string a = before.text(difference.key), b = now.text(difference.key);
  return same_path(a, b) || (same_path(a + ".bin", b + ".bin"));
}

/// The command still says what the run began with, before any --override of this key: that is the same command, not a
/// conflict. Data that is there where the command says has moved back.
bool was_overridden(const JsonDocument& run, const ConfigDifference& difference, const Config& now) {
  if (is_place_of_data(difference.key) && now.has(difference.key)) {
    const std::string path = now.text(difference.key);
    std::error_code failed;
    if (std::filesystem::exists(path, failed) || std::filesystem::exists(path + ".bin", failed)) return false;
  }
  for (const Json& entry : run.root()["overrides"]) {
    if (!entry.is_object() || entry.value("key", Json()) != difference.key) continue;
    return entry.value("before", Json()) == difference.after;
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
  const std::string given = length_key(command);
  if (given.empty()) return;
  for (const ConfigKey& key : config.schema().keys()) {
    if (!is_length(key.path) || command.is_given(key.path)) continue;
    config.apply_value(key.path, Json(), {.layer = ConfigLayer::flag, .name = "the length given"});
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
  keep_uppermost_length(alone);
  clear_other_lengths(now, alone);
  std::optional<Error> moved;
  for (const ConfigDifference& d : differences(before, now)) {
    if (was_overridden(document, d, now) && !asks_for_length(d.key, alone, overrides)) {
      now.apply_value(d.key, before.has(d.key) ? before.value(d.key) : Json(),
                      {.layer = ConfigLayer::flag, .name = "--override"});
      continue;
    }
    if (is_length(d.key) || names_same_path(d, before, now)) continue;
    const Error conflict =
        now.error(d.key, d.key + " is " + d.before + " in the run and " + d.after + " on the command line",
                  may_override(d.key) ? "leave it out, or use --override " + d.key + "=... to change it from here on"
                                      : "leave it out: it can't change within a run");
    const bool may_have_moved = is_place_of_data(d.key) && before.has(d.key) && now.has(d.key);
    if (!may_have_moved) throw conflict;
    if (!moved) moved = conflict;
  }
  const Config commanded = now;
  for (const std::string& assignment : overrides) apply_override(now, assignment);
  ResumedConfig result{
      .config = now,
      .earlier = {
          .run_json = document.root(), .before = before, .commanded = commanded, .overrides = {}, .moved = moved}};
  for (const ConfigDifference& d : differences(before, now)) {
    if (!names_same_path(d, before, now)) result.earlier.overrides.push_back({d.key, d.before, d.after});
  }
  return result;
}

std::string resumed_init(const EarlierRun& earlier, const std::string& init_path) {
  const Json init = earlier.run_json.value("init", Json());
  std::string before = init.is_string() ? init.get<std::string>() : "";
  if (!init_path.empty() && (before.empty() || !same_path(init_path, before))) {
    throw Error(ErrorKind::config, "the run started from '" + before + "', not '" + init_path + "'", "--init",
                "leave it out");
  }
  return before;
}

namespace {

void require_recorded_data(const EarlierRun& earlier, const RunSetup& setup) {
  require_same_data(earlier.run_json["data"], setup.identity);
  const auto recorded = earlier.run_json.find("tokenizer_sha256");
  if (recorded == earlier.run_json.end() || *recorded == setup.tokenizer_sha256) return;
  throw Error(ErrorKind::format, "the data's tokenizer is not the one that the run had", setup.data.front().path,
              "a run goes on with its own data");
}

}  // namespace

void require_same_run(const EarlierRun& earlier, const RunSetup& setup, const Checkpoint* checkpoint) {
  if (earlier.moved) {
    try {
      require_recorded_data(earlier, setup);
    } catch (const Error&) {
      throw *earlier.moved;
    }
  }
  if (checkpoint == nullptr) return;
  require_recorded_data(earlier, setup);
  TrainFacts facts{
      .data_vocab_size = setup.settings.model.vocab_size, .data_eod_id = setup.settings.data.eod_id, .init_model = {}};
  if (!setup.init_path.empty()) facts.init_model = setup.settings.model;
  const auto where = [](const Config& config) { return config.where(length_key(config)); };
  require_same_rates(resolve_settings(earlier.before, facts), resolve_settings(earlier.commanded, facts),
                     checkpoint->step, where(earlier.commanded));
  if (checkpoint->step > setup.settings.steps) {
    throw Error(ErrorKind::config,
                fmt::format("{} steps are done, and the run is to have {}", checkpoint->step, setup.settings.steps),
                where(setup.config), "a run that goes on can't get shorter than it is");
  }
}

int64_t resumed_micro_batch(const EarlierRun& earlier, const TrainSettings& settings) {
  if (!settings.micro_batch_is_auto) return settings.micro_batch_sequences;
  const auto recorded = earlier.run_json["resolved"]["micro_batch_sequences"].get<int64_t>();
  if (recorded < 1 || settings.batch_sequences % recorded != 0) {
    throw Error(
        ErrorKind::format,
        fmt::format("micro_batch_sequences {} does not divide a batch of {}", recorded, settings.batch_sequences),
        "run.json");
  }
  const bool is_new = std::any_of(earlier.overrides.begin(), earlier.overrides.end(), [](const AppliedOverride& o) {
    return o.key == "train.memory_limit" || o.key == "train.micro_batch_sequences";
  });
  return is_new ? settings.micro_batch_sequences : recorded;
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
  if (!is_length(key)) return;
  for (const ConfigKey& other : config.schema().keys()) {
    if (other.path == key || !is_length(other.path) || config.origin(other.path).name.starts_with("--override"))
      continue;
    config.apply_value(other.path, Json(), {.layer = ConfigLayer::flag, .name = where});
  }
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

namespace {

std::string device_in(const Json& entry) {
  const Json device = entry.is_object() ? entry.value("device", Json()) : Json();
  return device.is_string() ? device.get<std::string>() : "";
}

}  // namespace

std::string recorded_device(const EarlierRun& earlier) {
  const Json resumes = earlier.run_json.value("resumes", Json::array());
  return device_in(resumes.empty() ? earlier.run_json : resumes.back());
}

Json recorded_resumes(const EarlierRun& earlier, int64_t step, const std::string& device) {
  Json list = earlier.run_json.value("resumes", Json::array());
  list.push_back({{"from_step", step}, {"time", utc_time()}, {"device", device}});
  return list;
}

void require_same_rates(const TrainSettings& before, const TrainSettings& now, int64_t done, const std::string& where) {
  if (before.steps == now.steps) return;
  std::string hint = fmt::format("--steps {} keeps the length", before.steps);
  if (now.steps >= done) hint += fmt::format(", --override train.steps={} changes it from here on", now.steps);
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
                  where, hint);
    }
  }
}

Json run_json(const RunSetup& setup, const RunHistory& history) {
  const TrainSettings& s = setup.settings;
  Json run;
  run["schema"] = "keel.run/1";
  run["version"] = version();
  run["created"] = history.created;
  if (!history.device.empty()) run["device"] = history.device;
  run["config"] = setup.config.to_json();
  run["init"] = setup.init_path.empty() ? Json() : Json(setup.init_path);
  Json& resolved = run["resolved"];
  resolved["steps"] = s.steps;
  resolved["batch_sequences"] = s.batch_sequences;
  resolved["micro_batch_sequences"] = s.micro_batch_sequences;
  resolved["recompute"] = recompute_mode(s.recompute_segment);
  resolved["tokens_per_step"] = s.tokens_per_step();
  resolved["vocab_size"] = s.model.vocab_size;
  resolved["parameters"] = count_parameters(s.model).total;
  run["data"] = setup.identity;
  run["tokenizer_sha256"] = setup.tokenizer_sha256;
  run["overrides"] = history.overrides;
  run["resumes"] = history.resumes;
  return run;
}

}  // namespace keel
