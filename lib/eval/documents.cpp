#include "keel/eval/documents.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/eval/python_random.h"

namespace keel {
namespace {

/// Equal as Python compares dictionaries: whatever the order of their keys.
bool is_same_row(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    for (auto it = a.begin(); it != a.end(); ++it) {
      const auto other = b.find(it.key());
      if (other == b.end() || !is_same_row(*it, *other)) return false;
    }
    return true;
  }
  if (a.is_array() && b.is_array()) return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same_row);
  return a == b;
}

bool is_digits(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// What a row becomes by the task's templates.
struct RenderedRow {
  std::string question, answer;
  Json target;
  std::vector<std::string> choices;
  int64_t gold = 0;
};

constexpr int64_t kNoChoice = -100;  // as the harness has it

/// The right choice: the target itself if it is a number, else the choice that it spells.
int64_t gold_of(const Json& target, const std::vector<std::string>& choices) {
  if (target.is_number_integer()) return target.get<int64_t>();
  const auto choice = std::find(choices.begin(), choices.end(), target.get<std::string>());
  return choice == choices.end() ? kNoChoice : choice - choices.begin();
}

RenderedRow render(const Task& task, const Json& row) {
  RenderedRow out{.question = task.text.text(row), .target = task.target.value(row)};
  if (task.output_type == Task::OutputType::loglikelihood) {
    out.target = task.target.text(row);
    out.answer = out.target.get<std::string>();
    return out;
  }
  const Json choices = task.choices.value(row);
  if (!choices.is_array() || choices.empty()) throw Error(ErrorKind::format, "the choices are no list of texts");
  for (const Json& choice : choices) {
    if (!choice.is_string()) throw Error(ErrorKind::format, "a choice is no text");
    out.choices.push_back(choice.get<std::string>());
  }
  if (out.target.is_string() && is_digits(out.target.get<std::string>())) {
    out.target = std::stoll(out.target.get<std::string>());
  }
  if (!out.target.is_number_integer() && !out.target.is_string()) {
    throw Error(ErrorKind::format, "the target is neither a whole number nor a text");
  }
  out.gold = gold_of(out.target, out.choices);
  if (out.gold >= 0 && out.gold < std::ssize(out.choices)) out.answer = out.choices[out.gold];
  return out;
}

/// Examples for one document after another.
class ExamplePicker {
 public:
  /// Draws from `examples`; those equal to the document are left out if `excludes_own_row`. Error(usage) if there are too
  /// few of them.
  ExamplePicker(const Task& task, SplitRows examples, bool excludes_own_row, int64_t count, uint64_t seed)
      : task_(task),
        split_(std::move(examples.split)),
        rows_(std::move(examples.rows)),
        shots_(rows_.size()),
        excludes_own_row_(excludes_own_row),
        count_(count),
        random_(seed) {
    const bool draws_one_more = excludes_own_row && task.sampler == Task::Sampler::random;
    if (count > 0) require_rows(static_cast<int64_t>(rows_.size()), count + (draws_one_more ? 1 : 0));
  }

  /// The examples before a document, as text.
  std::string text_for(const Json& document) {
    std::string text;
    for (int64_t index : picks(document)) {
      if (!shots_[index]) shots_[index] = shot(index);
      text += *shots_[index];
    }
    return text;
  }

 private:
  std::vector<int64_t> picks(const Json& document) {
    if (count_ == 0) return {};
    const auto all = static_cast<int64_t>(rows_.size());
    if (task_.sampler == Task::Sampler::first_n) {
      std::vector<int64_t> first(count_);
      std::iota(first.begin(), first.end(), int64_t{0});
      return first;
    }
    if (!excludes_own_row_) return random_.sample(all, count_);
    std::vector<int64_t> drawn = random_.sample(all, count_ + 1);
    std::erase_if(drawn, [&](int64_t index) { return is_same_row(rows_[index], document); });
    if (static_cast<int64_t>(drawn.size()) < count_) {
      // Several copies of the document: another draw, from the rows that are none.
      std::vector<int64_t> others;
      for (int64_t i = 0; i < all; ++i) {
        if (!is_same_row(rows_[i], document)) others.push_back(i);
      }
      require_rows(static_cast<int64_t>(others.size()), count_);
      drawn.clear();
      for (int64_t i : random_.sample(static_cast<int64_t>(others.size()), count_)) drawn.push_back(others[i]);
    }
    drawn.resize(count_);
    return drawn;
  }

  /// Error(usage) unless there are enough rows to draw from.
  void require_rows(int64_t rows, int64_t needed) const {
    if (rows >= needed) return;
    throw Error(ErrorKind::usage,
                fmt::format("{} examples of {} need {} rows of the {} split, which has {}", count_, task_.name, needed,
                            split_, rows),
                "--num-fewshot");
  }

  std::string shot(int64_t index) const {
    try {
      const RenderedRow row = render(task_, rows_[index]);
      const std::string answer = row.answer.empty() ? "" : task_.target_delimiter + row.answer;
      return row.question + answer + task_.fewshot_delimiter;
    } catch (const Error& error) {
      throw error.at(fmt::format("{}: example row {}", task_.name, index));
    }
  }

  const Task& task_;
  std::string split_;
  std::vector<Json> rows_;
  std::vector<std::optional<std::string>> shots_;
  bool excludes_own_row_;
  int64_t count_;
  PythonRandom random_;
};

std::vector<int64_t> chosen_rows(const Task& task, const PromptOptions& options, int64_t rows) {
  for (int64_t sample : options.samples.value_or(std::vector<int64_t>{})) {
    if (sample >= 0 && sample < rows) continue;
    throw Error(ErrorKind::usage, fmt::format("{} has no row {}: it has {}", task.name, sample, rows), "--samples");
  }
  if (options.samples) return *options.samples;
  int64_t count = rows;
  if (options.limit) {
    const double limit = *options.limit < 1 ? std::ceil(*options.limit * static_cast<double>(rows)) : *options.limit;
    count = std::min(rows, static_cast<int64_t>(std::min(limit, 1e15)));
  }
  std::vector<int64_t> chosen(count);
  std::iota(chosen.begin(), chosen.end(), int64_t{0});
  return chosen;
}

void warn_of_split(const Task& task, const SplitRows& rows, const std::string& wanted, const char* use,
                   std::vector<std::string>& warnings) {
  const auto warn = [&](const std::string& warning) {
    if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) warnings.push_back(warning);
  };
  if (rows.split != wanted) {
    warn(fmt::format("{}: there is no {} split; the {} split ({}) {}", task.name, wanted, rows.split,
                     rows.files.front().path, use));
  }
  const auto published = task.data.rows.find(rows.split);
  const auto count = static_cast<int64_t>(rows.rows.size());
  if (published != task.data.rows.end() && published->second != count) {
    warn(fmt::format("{}: the {} split has {} rows here, {} as published", task.name, rows.split, count,
                     published->second));
  }
}

}  // namespace

TaskDocuments make_documents(const Task& task, DataFolder& folder, const PromptOptions& options) {
  TaskDocuments out{.task = &task, .num_fewshot = options.num_fewshot.value_or(task.num_fewshot.value_or(0))};
  SplitRows rows = folder.read_or_stand_in(task, task.evaluated_split(), {task.validation_split});
  warn_of_split(task, rows, task.evaluated_split(), "is scored in its place", out.warnings);
  out.rows = static_cast<int64_t>(rows.rows.size());
  out.files = rows.files;

  SplitRows examples;
  bool excludes_own_row = task.excludes_own_row();
  if (out.num_fewshot > 0) {
    examples = folder.read_or_stand_in(task, task.example_split(), {task.validation_split, task.evaluated_split()});
    warn_of_split(task, examples, task.example_split(), "gives the examples", out.warnings);
    // Where the scored rows stand in for missing ones, a row must not be its own example.
    excludes_own_row = excludes_own_row || (examples.split != task.example_split() && examples.split == rows.split);
    if (examples.split != rows.split) out.files.insert(out.files.end(), examples.files.begin(), examples.files.end());
  }
  ExamplePicker picker(task, std::move(examples), excludes_own_row, out.num_fewshot, options.fewshot_seed);

  for (int64_t id : chosen_rows(task, options, out.rows)) {
    EvalDocument document{.doc_id = id, .row = std::move(rows.rows[id])};
    const std::string shots = picker.text_for(document.row);
    try {
      RenderedRow row = render(task, document.row);
      document.context = task.description + shots + row.question;
      document.target = std::move(row.target);
      document.choices = std::move(row.choices);
      document.gold = row.gold;
      for (const std::string& choice : document.choices) {
        document.continuations.push_back(task.target_delimiter + choice);
      }
      if (document.choices.empty()) document.continuations.push_back(row.answer);
    } catch (const Error& error) {
      throw error.at(fmt::format("{}: row {}", task.name, id));
    }
    out.documents.push_back(std::move(document));
  }
  if (out.documents.empty()) throw Error(ErrorKind::format, task.name + " has no row to score", rows.files[0].path);
  return out;
}

}  // namespace keel
