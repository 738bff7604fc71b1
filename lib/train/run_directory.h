#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/file_lock.h"
#include "keel/base/json.h"
#include "keel/base/line_file.h"
#include "keel/train/log_schedule.h"

namespace keel {

/// One line of metrics.jsonl for a training step.
struct MetricsLine {
  int64_t step = 0;    ///< updates done, this one included
  int64_t tokens = 0;  ///< so far
  double loss = 0, grad_norm = 0, learning_rate = 0;
  bool empty = false;            ///< no target counted: loss and grad_norm are null
  double tokens_per_second = 0;  ///< of this step
  double seconds = 0;            ///< of training steps so far, saving and validation not counted
  int64_t peak_memory_bytes = 0;
};

/// A run directory that this process holds (flock on RUN/lock):
///   run.json        everything resolved (resume.h, run_json)
///   metrics.jsonl   a line a logged step, and validation lines
///   profile.jsonl   a line a profiled step: gradients and activations of every sublayer
///   samples.jsonl   what the model made of prompts, a line each
///   events.jsonl    starts, resumes, saves, signals, ends
///   report.json     written at the end
///   checkpoints/    see checkpoint.h
class KEEL_API RunDirectory {
 public:
  /// Error(usage) if a run directory cannot appear there: it holds a run or other files (unless `replace`), a run.json
  /// that is no run's, or what another tool made (a data set, a model). Touches nothing.
  static void require_creatable(const std::string& path, bool replace);
  /// A new directory, or one that is there already. With `replace` an earlier run's files are removed first, those that
  /// a run leaves and no others. Errors as require_creatable, asked again under the lock, and Error(io) if another
  /// process trains in it.
  static RunDirectory create(const std::string& path, bool replace);
  /// An existing one.
  static RunDirectory open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  void write_run_json(const Json& run);
  /// The run.json of a run directory; Error(format) if it is none, or a value that its readers use is missing or of
  /// another type.
  static JsonDocument read_run_json(const std::string& path);

  /// Brings metrics.jsonl to the state of an uninterrupted run of this schedule after `step` updates: lines beyond it,
  /// and those that only the end of a shorter run has, move to metrics.before-resume-STEP.jsonl. Returns how many.
  int64_t rewind_metrics(int64_t step, const LogSchedule& schedule);
  /// The same for profile.jsonl.
  int64_t rewind_profile(int64_t step, const LogSchedule& schedule);
  /// The same for samples.jsonl, where those of `step` itself go too unless the checkpoint has them behind it.
  int64_t rewind_samples(int64_t step, bool sampled, const LogSchedule& schedule);

  /// The validation loss that metrics.jsonl has for this step; NaN if it was not finite, nothing if there is no line.
  std::optional<double> validation_loss_at(int64_t step) const;
  /// Seconds that the last save of this step took, by events.jsonl; 0 if there is no line.
  double save_seconds_at(int64_t step) const;
  /// True if report.json is that of a run completed after `step` updates.
  bool is_completed(int64_t step) const;

  /// Error(io) if the directory was removed or replaced under this process: it must not write into another's.
  void log_step(const MetricsLine& line);
  void log_validation(int64_t step, int64_t tokens, double val_loss);
  /// profile_line.h
  void log_profile(const Json& line);
  /// All samples of a step, one line each.
  void log_samples(const std::vector<Json>& lines);
  /// {"time", "event": name, ...fields}
  void log_event(const std::string& name, const Json& fields);
  /// Lines so far reach the disk. Errors as log_step; called before each save.
  void sync();

 private:
  RunDirectory(std::string path, FileLock lock);
  /// Lines of NAME.jsonl that do not stay move to NAME.before-resume-STEP.jsonl.
  int64_t rewind(const std::string& name, int64_t step, const std::function<bool(const Json& line, int64_t at)>& stays);
  LineAppender& metrics();
  LineAppender& profile();
  LineAppender& samples();
  LineAppender& events();

  std::string path_;
  FileLock lock_;
  std::unique_ptr<LineAppender> metrics_, profile_, samples_, events_;
};

/// True if there is a run.json.
KEEL_API bool is_run_directory(const std::string& path);
}  // namespace keel
