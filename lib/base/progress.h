#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "keel/base/export.h"

namespace keel {

/// A number beside the count: name "loss", value 3.21, format "{:.4f}" (fmt; for people, JSON has the exact value).
struct ProgressField {
  const char* name;
  double value;
  const char* format = "{:.4g}";
};

/// How far a long job is. The library reports through this; the program decides what is shown. Calls come from one
/// thread at a time; update() is cheap (it looks at the clock and mostly returns), so call it for every unit of work.
class KEEL_API Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  virtual ~Progress();

  /// label "train"; unit "steps"; total 0 = unknown; done = where a continued job starts. show_rate: units a second,
  /// when no field says something better.
  virtual void start(std::string_view label, int64_t total, std::string_view unit, int64_t done = 0,
                     bool show_rate = true) = 0;
  /// fields: the most important first. A terminal that is too narrow for all leaves out the last ones.
  virtual void update(int64_t done, std::span<const ProgressField> fields = {}) = 0;
  /// Shows the last state once and ends the job; without start() nothing happens.
  virtual void finish() = 0;
};

enum class ProgressMode {
  automatic,  ///< a bar with rate and ETA on a terminal, else plain
  plain,      ///< one line at the start, at most every 5 s, and at the end; no carriage returns, no escapes
  json,  ///< the same times as plain, one object a line: {"progress":"train","done":12,"total":300,"unit":"steps",...}
  none,
};

/// Writes to stderr. `tool` starts plain lines: "keel-train: train 12/300 steps ...".
KEEL_API std::unique_ptr<Progress> make_progress(ProgressMode mode, const std::string& tool);
/// Shows nothing; for callers without a program around them.
KEEL_API Progress& no_progress();
/// Error(usage) with the nearest name: "auto", "plain", "json", "none".
KEEL_API ProgressMode parse_progress_mode(std::string_view name);

}  // namespace keel
