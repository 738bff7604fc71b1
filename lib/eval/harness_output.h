#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/eval/task_scores.h"

namespace keel {

/// Where lm-evaluation-harness puts its files. `out` is a folder, which gets one folder a model:
///   OUT/<model>/results_<date>.json, OUT/<model>/samples_<task>_<date>.jsonl
/// or a name in .json: <stem>_<date>.json beside it, and the samples in the same folder.
class KEEL_API HarnessOutput {
 public:
  /// `model` as named on the command line; `unix_time` gives the date.
  HarnessOutput(const std::string& out, const std::string& model, double unix_time);

  /// Whether write() can be done, for long jobs to ask before they begin; makes nothing. Error(io).
  void require_writable() const;
  /// The folders, a samples file a task if wanted, and the results, each complete or not there. Error(io).
  void write(const Json& results, const std::vector<TaskScores>& tasks, bool with_samples) const;

  const std::filesystem::path& results() const { return results_; }
  std::filesystem::path samples(const std::string& task) const;

 private:
  std::filesystem::path folder_, results_;
  std::string date_;
};

}  // namespace keel
