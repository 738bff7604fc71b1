#include "keel/train/run_directory.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string_view>

#include <nlohmann/json.hpp>

#include "keel/base/atomic_file.h"
#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/files.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

FileLock lock_of(const std::string& path) {
  return {fs::path(path) / "lock", "the run directory"};
}

/// Creates the folder and its parents so that they survive a power cut.
void make_durable_directories(const fs::path& path) {
  std::vector<fs::path> parents;
  for (fs::path at = fs::absolute(path).lexically_normal(); !fs::exists(at) && at.has_relative_path();) {
    at = at.parent_path();
    parents.push_back(at);
  }
  make_directories(path);
  for (const fs::path& parent : parents) sync_directory(parent);
}

/// A file of lines whose name survives a power cut.
std::unique_ptr<LineAppender> append_durably(const std::string& folder, const std::string& name) {
  auto lines = std::make_unique<LineAppender>(fs::path(folder) / name);
  sync_directory(folder);
  return lines;
}

bool is_checkpoint_name(const std::string& name) {
  return name.starts_with("step-") && name.find_first_not_of("0123456789", 5) == std::string::npos && name.size() > 5;
}

bool is_rewound(const std::string& name) {
  constexpr std::string_view kEnd = ".jsonl";
  for (const std::string_view start : {"metrics.before-resume-", "profile.before-resume-", "samples.before-resume-"}) {
    if (!name.starts_with(start) || !name.ends_with(kEnd) || name.size() <= start.size() + kEnd.size()) continue;
    return name.find_first_not_of("0123456789", start.size()) == name.size() - kEnd.size();
  }
  return false;
}

/// Everything a run leaves, and nothing else; run.json last, so that what is left of an interrupted removal still is a
/// run's.
void remove_run_files(const std::string& path) {
  std::vector<fs::path> ours;
  const auto collect = [&](const fs::path& folder, auto is_ours) {
    if (!fs::is_directory(folder)) return;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (is_ours(name) || is_temporary_name(name)) ours.push_back(entry.path());
    }
  };
  collect(path + "/checkpoints", is_checkpoint_name);
  collect(path, [](const std::string& name) {
    return name == "metrics.jsonl" || name == "profile.jsonl" || name == "samples.jsonl" || name == "events.jsonl" ||
           name == "report.json" || is_rewound(name) || name.starts_with("events.out.tfevents.");
  });
  for (const fs::path& entry : ours) fs::remove_all(entry);
  fs::remove(path + "/run.json");
}

bool is_run_json_of_keel(const std::string& path) {
  try {
    const JsonDocument document = read_json(path, ErrorKind::format);
    return document.root().is_object() && document.root().value("schema", Json()) == "keel.run/1";
  } catch (const Error&) {
    return false;
  }
}

bool has(const Json& object, const char* key, bool (Json::*is)() const noexcept) {
  const auto found = object.find(key);
  return found != object.end() && ((*found).*is)();
}

/// What data_identity.h says a shard's entry is.
bool is_shard_entry(const Json& entry) {
  return entry.is_object() && has(entry, "split", &Json::is_string) && has(entry, "path", &Json::is_string) &&
         has(entry, "bytes", &Json::is_number_integer) && has(entry, "tokens", &Json::is_number_integer) &&
         has(entry, "hashed", &Json::is_string) && has(entry, "xxh3", &Json::is_string);
}

/// An entry that a run may leave which was killed before it had a run.json.
bool is_of_a_killed_start(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  return name == "lock" || is_temporary_name(name) ||
         (name == "checkpoints" && entry.is_directory() && fs::is_empty(entry.path()));
}

}  // namespace

RunDirectory::RunDirectory(std::string path, FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}

void RunDirectory::require_creatable(const std::string& path, bool replace) {
  if (is_run_directory(path)) {
    if (!is_run_json_of_keel(path + "/run.json")) {
      throw Error(ErrorKind::usage, "the folder holds a run.json that is no keel run's", path,
                  "name another for the run");
    }
    if (replace) return;
    throw Error(ErrorKind::usage, "the run directory exists already", path,
                "--resume continues it, --force starts afresh");
  }
  if (!fs::is_directory(path)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (is_of_a_killed_start(entry)) continue;
    // A run's report.json and checkpoints would mix with a data set's or a model's, and --force would remove theirs.
    constexpr std::string_view kOthers[] = {"manifest.json", "config.json", "report.json", "metrics.jsonl",
                                            "checkpoints"};
    const std::string name = entry.path().filename().string();
    const bool is_others = std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
    if (replace && !is_others) continue;
    throw Error(
        ErrorKind::usage, "the folder holds a " + name + " and no run", path,
        is_others ? "name another for the run" : "name another for the run, or --force leaves what is there beside it");
  }
}

RunDirectory RunDirectory::create(const std::string& path, bool replace) {
  require_creatable(path, replace);
  make_durable_directories(path);
  RunDirectory run(path, lock_of(path));
  require_creatable(path, replace);  // another process may have made a run in the meantime
  if (replace) remove_run_files(path);
  make_directories(run.file("checkpoints"));
  sync_directory(path);
  return run;
}

RunDirectory RunDirectory::open(const std::string& path) {
  RunDirectory run(path, lock_of(path));
  remove_stale_temporaries(path);
  make_directories(run.file("checkpoints"));
  return run;
}

void RunDirectory::write_run_json(const Json& run) {
  write_file_atomically(file("run.json"), json_text(run, 2) + "\n");
}

JsonDocument RunDirectory::read_run_json(const std::string& path) {
  JsonDocument document = read_json(path + "/run.json", ErrorKind::format);
  const Json& root = document.root();
  const bool ours = root.is_object() && root.value("schema", Json()) == "keel.run/1" &&
                    has(root, "config", &Json::is_object) && has(root, "resolved", &Json::is_object) &&
                    has(root, "created", &Json::is_string) && has(root, "data", &Json::is_array) &&
                    has(root, "overrides", &Json::is_array) &&
                    has(root["resolved"], "steps", &Json::is_number_integer) &&
                    has(root["resolved"], "micro_batch_sequences", &Json::is_number_integer) &&
                    std::all_of(root["data"].begin(), root["data"].end(), is_shard_entry) &&
                    root.value("tokenizer_sha256", Json("")).is_string() &&
                    root.value("device", Json("")).is_string() && root.value("resumes", Json::array()).is_array();
  if (!ours) throw document.error("", "not the run.json of a run directory");
  return document;
}

int64_t RunDirectory::rewind(const std::string& name, int64_t step,
                             const std::function<bool(const Json& line, int64_t at)>& stays) {
  const std::string path = file(name + ".jsonl");
  std::vector<std::string> kept, moved;
  for (std::string& line : read_lines(path)) {
    const Json json = parse_json(line, path, ErrorKind::format);
    const auto at_step = json.find("step");
    if (!json.is_object() || at_step == json.end() || !at_step->is_number_integer()) {
      throw Error(ErrorKind::format, "a line without a whole number as its step", path);
    }
    (stays(json, at_step->get<int64_t>()) ? kept : moved).push_back(std::move(line));
  }
  if (moved.empty()) return 0;
  const std::string aside = file(name + ".before-resume-" + std::to_string(step) + ".jsonl");
  std::vector<std::string> all = read_lines(aside);
  all.insert(all.end(), moved.begin(), moved.end());
  write_lines(aside, all);
  write_lines(path, kept);
  return static_cast<int64_t>(moved.size());
}

int64_t RunDirectory::rewind_metrics(int64_t step, const LogSchedule& schedule) {
  return rewind("metrics", step, [&](const Json& line, int64_t at) {
    return at <= step && (line.contains("val_loss") ? schedule.validates(at) : schedule.logs(at));
  });
}

int64_t RunDirectory::rewind_profile(int64_t step, const LogSchedule& schedule) {
  return rewind("profile", step, [&](const Json&, int64_t at) { return at <= step && schedule.profiles(at); });
}

int64_t RunDirectory::rewind_samples(int64_t step, bool sampled, const LogSchedule& schedule) {
  const int64_t last = sampled ? step : step - 1;
  return rewind("samples", step, [&](const Json&, int64_t at) { return at <= last && schedule.samples(at); });
}

std::optional<double> RunDirectory::validation_loss_at(int64_t step) const {
  for (const std::string& line : read_lines(file("metrics.jsonl"))) {
    const Json json = parse_json(line, file("metrics.jsonl"), ErrorKind::format);
    if (!json.is_object() || !json.contains("val_loss") || json.value("step", Json()) != step) continue;
    return json["val_loss"].is_number() ? json["val_loss"].get<double>() : std::numeric_limits<double>::quiet_NaN();
  }
  return std::nullopt;
}

double RunDirectory::save_seconds_at(int64_t step) const {
  double seconds = 0;
  for (const std::string& line : read_lines(file("events.jsonl"))) {
    const Json json = parse_json(line, file("events.jsonl"), ErrorKind::format);
    if (!json.is_object() || json.value("event", Json()) != "save" || json.value("step", Json()) != step) continue;
    const Json value = json.value("seconds", Json());
    if (value.is_number()) seconds = value.get<double>();
  }
  return seconds;
}

bool RunDirectory::is_completed(int64_t step) const {
  if (!fs::exists(file("report.json"))) return false;
  try {
    const Json results = read_json(file("report.json"), ErrorKind::format).root().value("results", Json());
    return results.is_object() && results.value("status", Json()) == "completed" &&
           results.value("steps", Json()) == step;
  } catch (const std::exception&) {
    return false;  // damaged: it is written again
  }
}

LineAppender& RunDirectory::metrics() {
  if (!metrics_) metrics_ = append_durably(path_, "metrics.jsonl");
  return *metrics_;
}

LineAppender& RunDirectory::profile() {
  if (!profile_) profile_ = append_durably(path_, "profile.jsonl");
  return *profile_;
}

LineAppender& RunDirectory::samples() {
  if (!samples_) samples_ = append_durably(path_, "samples.jsonl");
  return *samples_;
}

LineAppender& RunDirectory::events() {
  if (!events_) events_ = append_durably(path_, "events.jsonl");
  return *events_;
}

void RunDirectory::log_step(const MetricsLine& line) {
  lock_.require_in_place();
  Json json;
  json["step"] = line.step;
  json["tokens"] = line.tokens;
  json["loss"] = json["grad_norm"] = nullptr;
  if (!line.empty) {
    set_number(json, "loss", line.loss);
    set_number(json, "grad_norm", line.grad_norm);
  }
  set_number(json, "learning_rate", line.learning_rate);
  set_number(json, "tokens_per_second", line.tokens_per_second);
  set_number(json, "seconds", line.seconds);
  json["peak_memory_bytes"] = line.peak_memory_bytes;
  metrics().append(json_text(json));
  metrics().flush();
}

void RunDirectory::log_validation(int64_t step, int64_t tokens, double val_loss) {
  Json json;
  json["step"] = step;
  json["tokens"] = tokens;
  set_number(json, "val_loss", val_loss);
  metrics().append(json_text(json));
  metrics().flush();
}

void RunDirectory::log_profile(const Json& line) {
  lock_.require_in_place();
  profile().append(json_text(line));
  profile().flush();
}

void RunDirectory::log_samples(const std::vector<Json>& lines) {
  lock_.require_in_place();
  for (const Json& line : lines) samples().append(json_text(line));
  samples().flush();
}

void RunDirectory::log_event(const std::string& name, const Json& fields) {
  Json json;
  json["time"] = utc_time();
  json["event"] = name;
  json.update(fields);
  events().append(json_text(json));
  events().flush();
}

void RunDirectory::sync() {
  lock_.require_in_place();
  metrics().sync();
  if (profile_) profile_->sync();
  if (samples_) samples_->sync();
  events().sync();
}

bool is_run_directory(const std::string& path) {
  return fs::exists(path + "/run.json");
}

}  // namespace keel
