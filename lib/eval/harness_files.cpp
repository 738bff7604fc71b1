#include "keel/eval/harness_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/hash.h"
#include "keel/eval/python_text.h"

namespace keel {
namespace {

Json number_or_text(const std::optional<double>& value) {
  if (!value) return "N/A";
  // JSON has no NaN: Python's writer says NaN, a reader of strict JSON needs something else.
  return std::isfinite(*value) ? Json(*value) : Json(python_repr(*value));
}

std::string doc_hash(const EvalDocument& document) {
  return sha256_hex(python_json(document.row, 2));
}

std::string target_text(const EvalDocument& document) {
  return document.target.is_string() ? document.target.get<std::string>() : document.target.dump();
}

std::string task_hash(const TaskDocuments& task) {
  Sha256 hash;
  for (const EvalDocument& document : task.documents) {
    for (const std::string& part :
         {doc_hash(document), sha256_hex(document.context), sha256_hex(target_text(document))}) {
      hash.update(part.data(), part.size());
    }
  }
  return hex(hash.digest());
}

/// A task's definition with everything it leaves to defaults, in the harness's order.
Json config_of(const TaskDocuments& task, const HarnessRun& run) {
  const Json& definition = task.task->definition;
  Json config;
  const auto copy = [&](const char* key) {
    if (definition.contains(key)) config[key] = definition[key];
  };
  for (const char* key : {"task", "task_alias", "dataset_path", "dataset_name", "training_split", "validation_split",
                          "test_split", "fewshot_split", "process_docs", "doc_to_text", "doc_to_target"}) {
    copy(key);
  }
  config["unsafe_code"] = false;
  copy("doc_to_choice");
  config["description"] = task.task->description;
  config["target_delimiter"] = task.task->target_delimiter;
  config["fewshot_delimiter"] = task.task->fewshot_delimiter;
  Json shots{{"sampler", task.task->sampler == Task::Sampler::first_n ? "first_n" : "default"},
             {"split", task.task->fewshot_split.empty() ? Json() : Json(task.task->fewshot_split)},
             {"process_docs", nullptr},
             {"fewshot_indices", nullptr},
             {"samples", nullptr}};
  for (const char* key : {"doc_to_text", "doc_to_choice", "doc_to_target"}) {
    shots[key] = definition.contains(key) ? definition[key] : Json();
  }
  shots["gen_prefix"] = nullptr;
  shots["fewshot_delimiter"] = task.task->fewshot_delimiter;
  shots["target_delimiter"] = task.task->target_delimiter;
  config["fewshot_config"] = std::move(shots);
  config["num_fewshot"] = task.num_fewshot;
  copy("metric_list");
  copy("output_type");
  config["repeats"] = 1;
  config["should_decontaminate"] = definition.value("should_decontaminate", false);
  copy("doc_to_decontamination_query");
  Json metadata{{"version", task.task->version}, {"pretrained", run.model}, {"config_source", "keel"}};
  config["metadata"] = std::move(metadata);
  return config;
}

Json run_config(const HarnessRun& run) {
  return {{"model", "keel"},
          {"model_args", {{"pretrained", run.model}}},
          {"model_num_parameters", run.parameters},
          {"model_dtype", run.dtype},
          {"model_revision", "main"},
          {"model_sha", ""},
          {"batch_size", std::to_string(run.batch_tokens) + " tokens"},
          {"batch_sizes", Json::array()},
          {"device", run.device},
          {"use_cache", nullptr},
          {"limit", run.limit ? Json(*run.limit) : Json()},
          {"bootstrap_iters", run.bootstrap_iterations},
          {"gen_kwargs", Json::object()},
          {"random_seed", run.seeds[0]},
          {"numpy_seed", run.seeds[1]},
          {"torch_seed", run.seeds[2]},
          {"fewshot_seed", run.seeds[3]}};
}

std::string version_text(const Json& version) {
  if (version.is_number()) return fmt::format("{:g}", version.get<double>());
  return version.is_string() ? version.get<std::string>() : version.dump();
}

Json result_of(const TaskScores& task) {
  const auto count = static_cast<int64_t>(task.documents->documents.size());
  Json result{{"name", task.documents->task->name}, {"alias", task.documents->task->alias}, {"sample_len", count}};
  for (const MetricResult& metric : task.metrics) {
    result[metric.metric->name + ",none"] = number_or_text(metric.value);
    result[metric.metric->name + "_stderr,none"] = number_or_text(metric.standard_error);
  }
  return result;
}

}  // namespace

Json harness_results(const HarnessRun& run, const std::vector<TaskScores>& tasks) {
  Json out{{"results", Json::object()}, {"group_subtasks", Json::object()}};
  std::map<std::string, const TaskScores*> sorted;
  for (const TaskScores& task : tasks) {
    out["results"][task.documents->task->name] = result_of(task);
    sorted[task.documents->task->name] = &task;
  }
  for (const char* key : {"configs", "versions", "n-shot", "higher_is_better", "n-samples"}) out[key] = Json::object();
  for (const auto& [name, task] : sorted) {
    out["configs"][name] = config_of(*task->documents, run);
    out["versions"][name] = task->documents->task->version;
    out["n-shot"][name] = task->documents->num_fewshot;
    for (const MetricResult& metric : task->metrics) {
      out["higher_is_better"][name][metric.metric->name] = metric.metric->higher_is_better;
    }
  }
  Json hashes = Json::object();
  for (const TaskScores& task : tasks) {
    out["n-samples"][task.documents->task->name] = {{"original", task.documents->rows},
                                                    {"effective", task.documents->documents.size()}};
    if (run.log_samples) hashes[task.documents->task->name] = task_hash(*task.documents);
  }
  out["config"] = run_config(run);
  out["git_hash"] = nullptr;
  out["date"] = run.start_time;
  out["pretty_env_info"] = run.environment;
  out["transformers_version"] = "N/A";
  out["lm_eval_version"] = "0.4.13";
  out["upper_git_hash"] = nullptr;
  const auto token = [](const std::optional<HarnessRun::Token>& t) {
    return t ? Json::array({t->text, std::to_string(t->id)}) : Json::array({"None", "None"});
  };
  out["tokenizer_pad_token"] = token(run.pad);
  out["tokenizer_eos_token"] = token(run.eos);
  out["tokenizer_bos_token"] = token(run.bos);
  out["eot_token_id"] = run.eos ? Json(run.eos->id) : Json();
  out["max_length"] = run.max_length;
  out["task_hashes"] = std::move(hashes);
  out["model_source"] = "keel";
  out["model_name"] = run.model;
  out["model_name_sanitized"] = sanitized_model_name(run.model);
  for (const char* key :
       {"system_instruction", "system_instruction_sha", "fewshot_as_multiturn", "chat_template", "chat_template_sha"}) {
    out[key] = nullptr;
  }
  out["start_time"] = run.start_time;
  out["end_time"] = run.end_time;
  out["total_evaluation_time_seconds"] = python_repr(run.end_time - run.start_time);
  out["keel"] = run.keel;
  return out;
}

std::string harness_sample(const TaskScores& task, size_t index) {
  const EvalDocument& document = task.documents->documents[index];
  Json arguments = Json::object(), resps = Json::array(), filtered = Json::array(), metrics = Json::array();
  for (size_t i = 0; i < document.continuations.size(); ++i) {
    arguments[fmt::format("gen_args_{}", i)] = {{"arg_0", document.context}, {"arg_1", document.continuations[i]}};
    const Score& score = task.scores[index][i];
    const Json pair = Json::array({python_repr(score.log_likelihood), score.is_greedy ? "True" : "False"});
    resps.push_back(Json::array({pair}));
    filtered.push_back(pair);
  }
  for (const MetricResult& metric : task.metrics) metrics.push_back(metric.metric->name);
  Json line{{"doc_id", document.doc_id},
            {"doc", document.row},
            {"target", target_text(document)},
            {"arguments", std::move(arguments)},
            {"resps", std::move(resps)},
            {"filtered_resps", std::move(filtered)},
            {"filter", "none"},
            {"metrics", std::move(metrics)},
            {"doc_hash", doc_hash(document)},
            {"prompt_hash", sha256_hex(document.context)},
            {"target_hash", sha256_hex(target_text(document))}};
  const bool is_choice = task.documents->task->output_type == Task::OutputType::multiple_choice;
  for (const MetricResult& metric : task.metrics) {
    const double value = metric.values[index];
    // The harness counts a greedy target as a whole number, a right choice as a float.
    const bool is_whole = !is_choice && metric.metric->kind == TaskMetric::Kind::acc;
    line[metric.metric->name] = is_whole ? Json(static_cast<int64_t>(value)) : number_or_text(value);
  }
  return python_json(line);
}

std::string harness_table(const std::vector<TaskScores>& tasks) {
  using Row = std::array<std::string, 9>;
  std::vector<Row> rows = {{"Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr"}};
  for (const TaskScores& task : tasks) {
    const Json& version = task.documents->task->version;
    for (const MetricResult& metric : task.metrics) {
      const bool first = &metric == &task.metrics.front();
      rows.push_back({first ? task.documents->task->alias : "", first ? version_text(version) : "", "none",
                      std::to_string(task.documents->num_fewshot), metric.metric->name,
                      metric.metric->higher_is_better ? "↑" : "↓", fmt::format("{:.4f}", metric.value), "±",
                      metric.standard_error ? fmt::format("{:.4f}", *metric.standard_error) : "N/A"});
    }
  }
  std::array<int64_t, 9> widths;
  widths.fill(3);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], count_characters(row[i]));
  }
  const auto is_number = [](size_t column) { return column == 1 || column == 3 || column == 6 || column == 8; };
  std::string table;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < widths.size(); ++i) {
      const auto padding = static_cast<size_t>(widths[i] - count_characters(rows[r][i]));
      const size_t left = r == 0 ? padding / 2 : is_number(i) ? padding : 0;  // headings stand in the middle
      table += "|" + std::string(left, ' ') + rows[r][i] + std::string(padding - left, ' ');
    }
    table += "|\n";
    if (r > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) {
      table += "|" + std::string(static_cast<size_t>(widths[i] - 1), '-') + (is_number(i) ? ":" : "-");
    }
    table += "|\n";
  }
  return table;
}

std::string sanitized_model_name(const std::string& name) {
  constexpr std::string_view kUnwanted = "\"<>:/|\\?*[]";
  std::string out;
  bool in_run = false;
  for (char c : name) {
    const bool is_unwanted = kUnwanted.find(c) != std::string_view::npos;
    if (!is_unwanted) out += c;
    if (is_unwanted && !in_run) out += "__";
    in_run = is_unwanted;
  }
  return out;
}

std::string harness_date(double unix_time) {
  const double whole = std::floor(unix_time);
  const auto seconds = static_cast<std::time_t>(whole);
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:04}-{:02}-{:02}T{:02}-{:02}-{:02}.{:06}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                     local.tm_hour, local.tm_min, local.tm_sec, static_cast<int64_t>((unix_time - whole) * 1e6));
}

}  // namespace keel
