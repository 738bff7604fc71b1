#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "keel/base/export.h"
#include "keel/eval/data_folder.h"
#include "keel/eval/task.h"

namespace keel {

/// Which rows are scored, and after how many examples.
struct PromptOptions {
  std::optional<int64_t> num_fewshot;           ///< absent: the task's own number, else 0
  std::optional<double> limit;                  ///< the first N rows; below 1 that part of them, rounded up
  std::optional<std::vector<int64_t>> samples;  ///< these rows, sorted and distinct, at least one. Not beside a limit
  uint64_t fewshot_seed = 1234;
};

/// One row with its prompts.
struct EvalDocument {
  int64_t doc_id = 0;                      ///< its number in the split
  Json row;                                ///< after process_docs
  Json target;                             ///< what doc_to_target gives: a whole number or a text
  std::vector<std::string> choices;        ///< of multiple_choice, without delimiter
  int64_t gold = 0;                        ///< index of the right choice; one outside them is right for no answer
  std::string context;                     ///< description, examples and question
  std::vector<std::string> continuations;  ///< one request each
};

/// A task's rows and what came of them.
struct TaskDocuments {
  const Task* task = nullptr;
  int64_t num_fewshot = 0;
  int64_t rows = 0;  ///< of the split
  std::vector<EvalDocument> documents;
  std::vector<RowFile> files;
  std::vector<std::string> warnings;  ///< splits that stand in, counts that differ from the published ones
};

/// Reads a task's rows and builds its prompts, as lm-evaluation-harness 0.4.13 builds them in one process:
///   context = description + n x (question + target_delimiter + answer + fewshot_delimiter) + question
/// with examples drawn by one PythonRandom(fewshot_seed) for all documents in order (sample(n); n + 1 without the
/// document's own row where the task says so, and a second draw if fewer than n are left), or the first n. Where rows
/// that are scored stand in for a missing split of examples, the own row is left out too.
/// Errors as DataFolder gives them; Error(format) naming file and row for a template that fails; Error(usage) for more
/// examples than rows, for a sample that is no row.
KEEL_API TaskDocuments make_documents(const Task& task, DataFolder& folder, const PromptOptions& options);

}  // namespace keel
