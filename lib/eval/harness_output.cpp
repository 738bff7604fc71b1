#include "keel/eval/harness_output.h"

#include <fmt/format.h>

#include "keel/base/atomic_file.h"
#include "keel/base/files.h"
#include "keel/base/report.h"
#include "keel/eval/harness_files.h"
#include "keel/eval/python_text.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

/// A model named "." or ".." has the name of that folder.
std::string folder_name(const std::string& model) {
  const fs::path name = fs::path(model).lexically_normal().filename();
  const bool is_relative_name = name == "." || name == ".." || name.empty();
  return sanitized_model_name(is_relative_name ? fs::weakly_canonical(fs::absolute(model)).string() : model);
}

}  // namespace

HarnessOutput::HarnessOutput(const std::string& out, const std::string& model, double unix_time)
    : date_(harness_date(unix_time)) {
  const fs::path path(out);
  const bool is_file = path.extension() == ".json";
  folder_ = !is_file ? path / folder_name(model) : path.has_parent_path() ? path.parent_path() : fs::path(".");
  results_ = folder_ / fmt::format("{}_{}.json", is_file ? path.stem().string() : "results", date_);
}

void HarnessOutput::require_writable() const {
  fs::path existing = folder_;
  std::error_code code;
  while (!fs::exists(existing, code) && existing.has_parent_path() && existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  if (!fs::exists(existing, code)) existing = ".";
  require_directory(existing);
  Report::require_writable(existing / results_.filename(), false, {});
}

fs::path HarnessOutput::samples(const std::string& task) const {
  return folder_ / fmt::format("samples_{}_{}.jsonl", task, date_);
}

void HarnessOutput::write(const Json& results, const std::vector<TaskScores>& tasks, bool with_samples) const {
  make_directories(folder_);
  for (const TaskScores& task : tasks) {
    if (!with_samples) break;
    AtomicFile file(samples(task.documents->task->name));
    for (size_t i = 0; i < task.documents->documents.size(); ++i) file.write(harness_sample(task, i) + "\n");
    file.commit();
  }
  write_file_atomically(results_, python_json(results, 2));
}

}  // namespace keel
