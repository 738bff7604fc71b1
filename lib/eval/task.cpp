#include "keel/eval/task.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/suggest.h"
#include "keel/eval/built_in_tasks.h"
#include "keel/eval/python_text.h"
#include "keel/eval/row_processing.h"

namespace keel {
namespace {

/// Keys of a definition that have no effect here and are kept for result files.
constexpr const char* kCarriedKeys[] = {
    "dataset_path", "dataset_name", "should_decontaminate", "doc_to_decontamination_query", "metadata", "data"};

/// Typed look-ups in a definition. Every key that is asked for counts as known.
class DefinitionReader {
 public:
  explicit DefinitionReader(const JsonDocument& document) : document_(document) {
    if (!document.root().is_object()) throw document.error("", "a task definition must be an object");
    for (const char* key : kCarriedKeys) known_.insert(key);
  }

  const Json* find(const std::string& key) {
    known_.insert(key);
    const auto at = document_.root().find(key);
    return at == document_.root().end() || at->is_null() ? nullptr : &*at;
  }
  std::string text(const std::string& key, const std::string& absent = {}) {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_string()) throw error(key, key + " must be a text");
    return value->get<std::string>();
  }
  std::string required_text(const std::string& key) {
    if (find(key) == nullptr) throw document_.error("", "a task needs " + key);
    return text(key);
  }
  std::string choice(const std::string& key, const std::string& absent, const std::vector<std::string>& choices) {
    const std::string value = text(key, absent);
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
    throw error(key, fmt::format("{} is unknown: '{}'", key, value), suggestion(value, choices));
  }
  TaskValue value(const std::string& key) {
    const Json* definition = find(key);
    return definition == nullptr ? TaskValue() : TaskValue(*definition, document_.where("/" + key));
  }
  Error error(const std::string& key, const std::string& message, const std::string& hint = {}) const {
    return document_.error("/" + pointer_part(key), message, hint);
  }
  void refuse_unknown() const {
    const std::vector<std::string> names(known_.begin(), known_.end());
    for (auto it = document_.root().begin(); it != document_.root().end(); ++it) {
      if (known_.contains(it.key())) continue;
      throw Error(document_.kind(), "unknown key " + it.key(), document_.where_key("/" + pointer_part(it.key())),
                  suggestion(it.key(), names));
    }
  }
  const JsonDocument& document() const { return document_; }

 private:
  const JsonDocument& document_;
  std::set<std::string> known_;
};

std::vector<std::string> texts_of(const JsonDocument& document, const std::string& pointer, const Json& list) {
  std::vector<std::string> texts;
  if (!list.is_array()) throw document.error(pointer, "must be a list of texts");
  for (const Json& item : list) {
    if (!item.is_string()) throw document.error(pointer, "must be a list of texts");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

void add_templates(const JsonDocument& document, const std::string& pointer, const std::string& prefix,
                   const Json& fields, RowLayout& layout) {
  if (!fields.is_object()) throw document.error(pointer, "must be an object of templates");
  for (auto it = fields.begin(); it != fields.end(); ++it) {
    const std::string inside = pointer + "/" + pointer_part(it.key());
    if (it->is_object()) {
      add_templates(document, inside, prefix + it.key() + ".", *it, layout);
    } else if (it->is_string()) {
      layout.row.emplace_back(prefix + it.key(), Template(it->get<std::string>(), document.where(inside)));
    } else {
      throw document.error(inside, "must be a template");
    }
  }
}

TaskData parse_data(const JsonDocument& document) {
  TaskData data;
  const auto at = document.root().find("data");
  if (at == document.root().end() || !at->is_object()) {
    throw document.error("", "a task needs an object data: where its rows are found");
  }
  for (auto it = at->begin(); it != at->end(); ++it) {
    const std::string pointer = "/data/" + pointer_part(it.key());
    if (it.key() == "origin" && it->is_string()) {
      data.origin = it->get<std::string>();
    } else if (it.key() == "path_words") {
      data.path_words = texts_of(document, pointer, *it);
    } else if (it.key() == "rows" && it->is_object()) {
      for (auto row = it->begin(); row != it->end(); ++row) {
        if (!row->is_number_unsigned()) throw document.error(pointer, "must be counts of rows");
        data.rows[row.key()] = row->get<int64_t>();
      }
    } else if (it.key() == "layouts" && it->is_array()) {
      for (size_t i = 0; i < it->size(); ++i) {
        const Json& definition = (*it)[i];
        const std::string inside = fmt::format("{}/{}", pointer, i);
        RowLayout layout;
        if (!definition.is_object() || !definition.contains("fields")) {
          throw document.error(inside, "a layout needs fields");
        }
        layout.fields = texts_of(document, inside + "/fields", definition["fields"]);
        if (definition.contains("row")) add_templates(document, inside + "/row", "", definition["row"], layout);
        data.layouts.push_back(std::move(layout));
      }
    } else {
      throw document.error(pointer, "data has no such key, or it is of another type",
                           "origin, path_words, rows and layouts are known");
    }
  }
  if (data.layouts.empty()) throw document.error("/data", "data needs layouts");
  return data;
}

std::vector<TaskMetric> parse_metrics(DefinitionReader& reader, Task::OutputType output_type) {
  std::vector<TaskMetric> metrics;
  const Json* list = reader.find("metric_list");
  if (list == nullptr || !list->is_array() || list->empty()) throw reader.error("metric_list", "a task needs metrics");
  const bool is_choice = output_type == Task::OutputType::multiple_choice;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    const std::string name = entry.is_object() ? entry.value("metric", "") : "";
    TaskMetric metric{.name = name};
    if (name == "acc") {
      metric.kind = TaskMetric::Kind::acc;
    } else if (name == "acc_norm" && is_choice) {
      metric.kind = TaskMetric::Kind::acc_norm;
    } else if (name == "perplexity" && !is_choice) {
      metric.kind = TaskMetric::Kind::perplexity;
    } else {
      throw reader.document().error(fmt::format("/metric_list/{}", i),
                                    fmt::format("no metric '{}' for this output_type", name),
                                    is_choice ? "acc and acc_norm are known" : "acc and perplexity are known");
    }
    metric.higher_is_better = metric.kind != TaskMetric::Kind::perplexity;
    const std::string aggregation = metric.higher_is_better ? "mean" : "perplexity";
    if (entry.value("aggregation", aggregation) != aggregation ||
        entry.value("higher_is_better", metric.higher_is_better) != metric.higher_is_better) {
      throw reader.document().error(fmt::format("/metric_list/{}", i),
                                    fmt::format("{} is aggregated by {}", name, aggregation));
    }
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

Task::Sampler parse_sampler(DefinitionReader& reader) {
  const Json* config = reader.find("fewshot_config");
  if (config == nullptr) return Task::Sampler::random;
  const bool is_known = config->is_object() && config->size() == 1 && config->contains("sampler");
  const Json sampler = is_known ? config->at("sampler") : Json();
  if (sampler == "default") return Task::Sampler::random;
  if (sampler == "first_n") return Task::Sampler::first_n;
  throw reader.error("fewshot_config", "fewshot_config is unknown",
                     "it says {\"sampler\": \"default\"} or \"first_n\"");
}

Json version_of(const Json& definition) {
  const auto metadata = definition.find("metadata");
  if (metadata == definition.end() || !metadata->is_object() || !metadata->contains("version")) return "Yaml";
  return metadata->at("version");
}

}  // namespace

TaskValue::TaskValue(const Json& definition, const std::string& where) {
  if (definition.is_string()) {
    template_.emplace(definition.get<std::string>(), where);
  } else {
    constant_ = definition;
  }
}

Json TaskValue::value(const Json& row) const {
  if (!template_) return constant_;
  if (const auto field = row.find(template_->source()); field != row.end()) return *field;
  return template_->value(row);
}

std::string TaskValue::text(const Json& row) const {
  if (!template_ || row.contains(template_->source())) return python_str(value(row));
  return template_->text(row);
}

const std::string& Task::example_split() const {
  for (const std::string* split : {&fewshot_split, &training_split, &validation_split}) {
    if (!split->empty()) return *split;
  }
  return test_split;
}

Task parse_task(const JsonDocument& document) {
  DefinitionReader reader(document);
  Task task;
  task.name = reader.required_text("task");
  task.alias = reader.text("task_alias", task.name);
  if (const Json* tags = reader.find("tag")) task.tags = texts_of(document, "/tag", *tags);
  task.definition = document.root();
  task.version = version_of(document.root());
  task.training_split = reader.text("training_split");
  task.validation_split = reader.text("validation_split");
  task.test_split = reader.text("test_split");
  task.fewshot_split = reader.text("fewshot_split");
  if (task.evaluated_split().empty()) throw document.error("", "a task needs a test_split or a validation_split");
  task.process_docs = reader.text("process_docs");
  if (!task.process_docs.empty() && find_row_processor(task.process_docs) == nullptr) {
    throw reader.error("process_docs", "there is no process_docs " + task.process_docs,
                       suggestion(task.process_docs, row_processor_names()));
  }
  task.description = reader.text("description");
  task.target_delimiter = reader.text("target_delimiter", " ");
  task.fewshot_delimiter = reader.text("fewshot_delimiter", "\n\n");
  (void)reader.required_text("doc_to_text");
  task.text = reader.value("doc_to_text");
  task.target = reader.value("doc_to_target");
  if (!task.target.is_given()) throw document.error("", "a task needs doc_to_target");
  task.choices = reader.value("doc_to_choice");
  const std::string type = reader.choice("output_type", "", {"multiple_choice", "loglikelihood"});
  task.output_type = type == "loglikelihood" ? Task::OutputType::loglikelihood : Task::OutputType::multiple_choice;
  if (task.choices.is_given() != (task.output_type == Task::OutputType::multiple_choice)) {
    throw document.error("", "doc_to_choice belongs to output_type multiple_choice, and to it alone");
  }
  task.sampler = parse_sampler(reader);
  if (const Json* shots = reader.find("num_fewshot")) {
    if (!shots->is_number_unsigned()) throw reader.error("num_fewshot", "num_fewshot must be a whole number");
    task.num_fewshot = shots->get<int64_t>();
  }
  task.metrics = parse_metrics(reader, task.output_type);
  reader.refuse_unknown();
  task.data = parse_data(document);
  return task;
}

std::span<const Task> built_in_tasks() {
  static const std::vector<Task> tasks = [] {
    std::vector<Task> parsed;
    for (const detail::TaskFile& file : detail::task_files()) {
      parsed.push_back(parse_task(JsonDocument(file.text, file.name, ErrorKind::internal)));
    }
    std::sort(parsed.begin(), parsed.end(), [](const Task& a, const Task& b) { return a.name < b.name; });
    return parsed;
  }();
  return tasks;
}

std::vector<const Task*> find_tasks(std::span<const std::string> names, const std::string& where) {
  std::vector<const Task*> found;
  std::vector<std::string> known;
  for (const Task& task : built_in_tasks()) {
    known.push_back(task.name);
    known.insert(known.end(), task.tags.begin(), task.tags.end());
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw Error(ErrorKind::usage, "there is no task or tag " + quoted_name(name), where, suggestion(name, known));
    }
    for (const Task& task : built_in_tasks()) {
      const bool is_meant = task.name == name || std::find(task.tags.begin(), task.tags.end(), name) != task.tags.end();
      if (is_meant && std::find(found.begin(), found.end(), &task) == found.end()) found.push_back(&task);
    }
  }
  return found;
}

}  // namespace keel
