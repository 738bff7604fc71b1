#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/eval/template.h"

namespace keel {

/// One aggregate of a task.
struct TaskMetric {
  enum class Kind {
    acc,         ///< multiple_choice: the most probable choice is the right one; loglikelihood: the target is greedy
    acc_norm,    ///< the same with log-likelihoods divided by the choices' lengths in characters
    perplexity,  ///< exp(-mean log-likelihood of the target)
  };
  Kind kind = Kind::acc;
  std::string name;
  bool higher_is_better = true;
};

/// A form in which rows of a data set lie in files, and the row that the task's templates are made for.
struct RowLayout {
  std::vector<std::string> fields;  ///< dotted paths that a row of this form has
  /// What each field of the task's row is, nested objects in "a.b" form; empty: the row as it is. A template that is
  /// one absent field leaves its field out.
  std::vector<std::pair<std::string, Template>> row;
};

/// Where a task's rows are looked for under --data.
struct TaskData {
  std::string origin;                   ///< for messages: what to get
  std::vector<std::string> path_words;  ///< words that the file's path must have, lower case
  std::map<std::string, int64_t> rows;  ///< published rows of each split
  std::vector<RowLayout> layouts;
};

/// A text, a whole number, or (for choices) a list: a template, a constant, or a field's name.
class KEEL_API TaskValue {
 public:
  TaskValue() = default;
  /// `definition` is a string (a template) or another value (a constant). Error(config).
  TaskValue(const Json& definition, const std::string& where);
  /// A text that names a field of the row is that field. Error(format) as Template has it.
  Json value(const Json& row) const;
  std::string text(const Json& row) const;
  bool is_given() const { return template_.has_value() || !constant_.is_null(); }

 private:
  std::optional<Template> template_;
  Json constant_;
};

/// A benchmark: which rows, how they become prompts, what is measured. Read from a definition in JSON, whose words are
/// those of lm-evaluation-harness's task files, and "data" for the local files (docs/tasks.md).
struct KEEL_API Task {
  enum class OutputType { multiple_choice, loglikelihood };
  enum class Sampler {
    random,   ///< drawn for every document by one generator
    first_n,  ///< the first rows, the same for all
  };

  std::string name;
  std::vector<std::string> tags;
  Json definition;  ///< as read, for --describe and result files
  Json version;     ///< a number; "Yaml" where the definition has none
  std::string alias;
  std::string training_split, validation_split, test_split, fewshot_split;  ///< "" = none
  std::string process_docs;                                                 ///< a name of row_processing.h, or ""
  std::string description, target_delimiter = " ", fewshot_delimiter = "\n\n";
  TaskValue text, target, choices;
  Sampler sampler = Sampler::random;
  std::optional<int64_t> num_fewshot;
  OutputType output_type = OutputType::multiple_choice;
  std::vector<TaskMetric> metrics;
  TaskData data;

  /// The split whose rows are scored.
  const std::string& evaluated_split() const { return test_split.empty() ? validation_split : test_split; }
  /// The split that examples come from.
  const std::string& example_split() const;
  /// Whether a document's own row is kept out of its examples, which costs one more draw.
  bool excludes_own_row() const { return fewshot_split == test_split; }
};

/// Error(config) with the position of what is missing, unknown or contradictory.
KEEL_API Task parse_task(const JsonDocument& definition);

/// The tasks that come with the program, sorted by name.
KEEL_API std::span<const Task> built_in_tasks();
/// The tasks that names and tags stand for, in the order named, each once. Error(usage) with the nearest name and
/// `where`, the option they come from.
KEEL_API std::vector<const Task*> find_tasks(std::span<const std::string> names, const std::string& where = "--tasks");

}  // namespace keel
