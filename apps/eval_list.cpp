#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "eval_modes.h"
#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/output.h"
#include "keel/eval/documents.h"

namespace keel {

int list_tasks(const Options& options) {
  if (options.flag("--json")) {
    Json list = Json::array();
    for (const Task& task : built_in_tasks()) {
      list.push_back({{"task", task.name},
                      {"tags", task.tags},
                      {"output_type", task.definition["output_type"]},
                      {"dataset_path", task.definition.value("dataset_path", "")},
                      {"version", task.version}});
    }
    write_stdout(json_text(list, 2) + "\n");
    return kExitOk;
  }
  std::string table = fmt::format("{:<20} {:<20} {:<18} {}\n", "task", "tags", "output_type", "data");
  for (const Task& task : built_in_tasks()) {
    table += fmt::format("{:<20} {:<20} {:<18} {}\n", task.name,
                         task.tags.empty() ? "-" : fmt::format("{}", fmt::join(task.tags, ",")),
                         task.definition["output_type"].get<std::string>(), task.definition.value("dataset_path", ""));
  }
  write_stdout(table);
  return kExitOk;
}

int describe_task(const Options& options) {
  const std::vector<std::string> names = {options.text("--describe")};
  const Task& task = *find_tasks(names, "--describe").front();
  std::vector<std::string> metrics;
  for (const TaskMetric& metric : task.metrics) metrics.push_back(metric.name);
  std::optional<EvalDocument> first;
  TaskDocuments documents;
  if (options.has("--data")) {
    DataFolder folder(options.text("--data"));
    documents = make_documents(task, folder,
                               {.num_fewshot = options.find_integer("--num-fewshot"),
                                .limit = 1,
                                .fewshot_seed = parse_seeds(options.text("--seed")).back()});
    for (const std::string& warning : documents.warnings) log::warn("{}", warning);
    first = documents.documents.front();
  }
  if (options.flag("--json")) {
    Json json = task.definition;
    if (first) json["first_prompt"] = {{"context", first->context}, {"continuations", first->continuations}};
    write_stdout(json_text(json, 2) + "\n");
    return kExitOk;
  }
  std::string text = json_text(task.definition, 2) + "\n\n";
  text += fmt::format("scored: the {} split; examples from the {} split, {} by default\n", task.evaluated_split(),
                      task.example_split(), task.num_fewshot.value_or(0));
  text += fmt::format("metrics: {}\nfiles: {}\n", fmt::join(metrics, ", "), task.data.origin);
  if (first) {
    for (const RowFile& file : documents.files) text += fmt::format("found: {}, {} rows\n", file.path, file.rows);
    text += fmt::format("\nfirst prompt:\n{}\n", first->context);
    for (const std::string& continuation : first->continuations) text += fmt::format("  |{}\n", continuation);
  }
  write_stdout(text);
  return kExitOk;
}

}  // namespace keel
