#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "eval_modes.h"
#include "keel/base/atomic_file.h"
#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/log.h"
#include "keel/base/output.h"
#include "keel/base/report.h"
#include "keel/base/signals.h"
#include "keel/base/tool.h"
#include "keel/base/utf8.h"
#include "keel/base/version.h"
#include "keel/eval/harness_files.h"
#include "keel/eval/pair_encoder.h"
#include "keel/eval/python_text.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

/// The four seeds of --seed.
std::vector<int64_t> parse_seeds(const std::string& text) {
  std::vector<int64_t> seeds;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int64_t seed = 0;
    const auto result = std::from_chars(text.data() + at, text.data() + end, seed);
    if (result.ec != std::errc() || result.ptr != text.data() + end || seed < 0) {
      throw Error(ErrorKind::usage, "seeds are whole numbers, one or four: '" + text + "'", "--seed");
    }
    seeds.push_back(seed);
    at = end + 1;
  }
  if (seeds.size() == 1) seeds.resize(4, seeds[0]);
  if (seeds.size() != 4) throw Error(ErrorKind::usage, "seeds are one number or four: '" + text + "'", "--seed");
  return seeds;
}

/// {"task": [rows]} of --samples.
Json read_samples(const Options& options) {
  const auto given = options.find_text("--samples");
  if (!given) return Json::object();
  if (options.has("--limit")) throw Error(ErrorKind::usage, "--samples and --limit are two choices of rows: give one");
  const bool is_text = given->find('{') != std::string::npos;
  const JsonDocument document =
      is_text ? JsonDocument(*given, "--samples", ErrorKind::usage) : read_json(*given, ErrorKind::config);
  const auto is_row = [](const Json& row) { return row.is_number_unsigned(); };
  const Json& root = document.root();
  const bool is_fine = root.is_object() && std::all_of(root.begin(), root.end(), [&](const Json& rows) {
                         return rows.is_array() && std::all_of(rows.begin(), rows.end(), is_row);
                       });
  if (!is_fine) throw document.error("", "samples are an object of lists of row numbers");
  return root;
}

PromptOptions document_options(const Options& options, const Task& task, const Json& samples, uint64_t seed) {
  PromptOptions out{.num_fewshot = options.find_integer("--num-fewshot"),
                    .limit = options.find_real("--limit"),
                    .fewshot_seed = seed};
  if (samples.contains(task.name)) {
    out.samples = samples[task.name].get<std::vector<int64_t>>();
    std::sort(out.samples.begin(), out.samples.end());
    out.samples.erase(std::unique(out.samples.begin(), out.samples.end()), out.samples.end());
  }
  return out;
}

std::vector<TaskDocuments> read_tasks(const Options& options, uint64_t seed) {
  const std::vector<const Task*> tasks = find_tasks(options.texts("--tasks"));
  const Json samples = read_samples(options);
  for (auto it = samples.begin(); it != samples.end(); ++it) {
    if (std::none_of(tasks.begin(), tasks.end(), [&](const Task* task) { return task->name == it.key(); })) {
      throw Error(ErrorKind::usage, fmt::format("rows of {}, which is not among --tasks", it.key()), "--samples");
    }
  }
  DataFolder folder(options.text("--data"));
  std::vector<TaskDocuments> out;
  for (const Task* task : tasks) {
    out.push_back(make_documents(*task, folder, document_options(options, *task, samples, seed)));
    for (const std::string& warning : out.back().warnings) log::warn("{}", warning);
    for (const RowFile& file : out.back().files) {
      log::info("{}: {} rows, {} bytes, sha256 {}", file.path, file.rows, file.bytes, file.sha256.substr(0, 16));
    }
  }
  return out;
}

PairEncoderOptions encoder_options(const Options& options) {
  PairEncoderOptions out;
  const std::string bos = options.text("--compat-bos");
  out.bos = bos == "off"  ? PairEncoderOptions::Bos::off
            : bos == "on" ? PairEncoderOptions::Bos::on
                          : PairEncoderOptions::Bos::tokenizer;
  if (const auto id = options.find_integer("--prefix-token-id")) out.prefix_token_id = static_cast<int32_t>(*id);
  out.encode_empty_alone = options.text("--empty-continuation") == "alone";
  return out;
}

/// The requests of all tasks, one after another.
std::vector<ScoreRequest> encode_requests(const std::vector<TaskDocuments>& tasks, PairEncoder& encoder,
                                          int64_t max_length) {
  std::vector<ScoreRequest> requests;
  for (const TaskDocuments& task : tasks) {
    for (const EvalDocument& document : task.documents) {
      throw_if_stopped();
      for (size_t i = 0; i < document.continuations.size(); ++i) {
        const std::string where = fmt::format("{}: row {}, request {}", task.task->name, document.doc_id, i);
        try {
          requests.push_back(encoder.encode(document.context, document.continuations[i]));
        } catch (const Error& error) {
          throw Error(error.kind(), error.what(), where);
        }
        const auto length = static_cast<int64_t>(requests.back().continuation.size());
        if (length > max_length) {
          throw Error(ErrorKind::usage,
                      fmt::format("an answer of {} tokens is longer than max_length {}", length, max_length), where);
        }
      }
    }
  }
  return requests;
}

ScorerSizes scorer_sizes(const Options& options, const std::vector<ScoreRequest>& requests, int64_t max_length) {
  size_t longest = 1;
  for (const ScoreRequest& request : requests) {
    longest = std::max(longest, request.context.size() + request.continuation.size() - 1);
  }
  ScorerSizes sizes{.max_length = std::min(max_length, static_cast<int64_t>(longest)),
                    .max_tokens = options.integer("--batch-tokens")};
  const std::string softmax = options.text("--softmax-dtype");
  if (softmax == "bf16") sizes.softmax = ScorerSizes::Softmax::bf16;
  if (softmax == "fp16") sizes.softmax = ScorerSizes::Softmax::fp16;
  return sizes;
}

/// Cuts the scores of all requests up again.
std::vector<TaskScores> score_tasks(const std::vector<TaskDocuments>& tasks, const std::vector<Score>& scores,
                                    int64_t bootstrap_iterations, int threads) {
  std::vector<TaskScores> out;
  auto next = scores.begin();
  for (const TaskDocuments& task : tasks) {
    std::vector<std::vector<Score>> of_documents;
    for (const EvalDocument& document : task.documents) {
      const auto end = next + static_cast<std::ptrdiff_t>(document.continuations.size());
      of_documents.emplace_back(next, end);
      next = end;
    }
    out.push_back(score_task(task, std::move(of_documents), bootstrap_iterations, threads));
  }
  return out;
}

std::pair<std::string, std::optional<int32_t>> token_named(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return {id ? tokenizer.piece(*id) : "", id};
}

/// Where the harness's files go: --out is a folder, or a .json file whose name gets the date.
struct HarnessPaths {
  fs::path folder, results;
  std::string date;

  fs::path samples(const std::string& task) const { return folder / fmt::format("samples_{}_{}.jsonl", task, date); }
};

HarnessPaths harness_paths(const std::string& out, const std::string& model, const std::string& date) {
  const fs::path path(out);
  if (path.extension() == ".json") {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    return {folder, folder / fmt::format("{}_{}.json", path.stem().string(), date), date};
  }
  const fs::path folder = path / sanitized_model_name(model);
  return {folder, folder / fmt::format("results_{}.json", date), date};
}

void write_harness_files(const HarnessPaths& paths, const Json& results, const std::vector<TaskScores>& tasks,
                         bool log_samples) {
  make_directories(paths.folder);
  if (log_samples) {
    for (const TaskScores& task : tasks) {
      AtomicFile file(paths.samples(task.documents->task->name));
      for (size_t i = 0; i < task.documents->documents.size(); ++i) file.write(harness_sample(task, i) + "\n");
      file.commit();
    }
  }
  write_file_atomically(paths.results, python_json(results, 2));
}

/// What is only ours: the key "keel" of the result file.
Json keel_section(const Options& options, const std::vector<TaskScores>& tasks, const PairEncoder& encoder,
                  const Scorer& scorer) {
  Json files = Json::object(), truncated = Json::object(), nan = Json::object(), outside = Json::object();
  for (const TaskScores& task : tasks) {
    const std::string& name = task.documents->task->name;
    for (const RowFile& file : task.documents->files) {
      files[name].push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}, {"rows", file.rows}});
    }
    truncated[name] = task.truncated;
    nan[name] = task.nan;
    outside[name] = task.gold_outside;
  }
  return {{"version", version()},
          {"files", std::move(files)},
          {"compat_bos", options.text("--compat-bos")},
          {"adds_bos", encoder.adds_bos()},
          {"prefix_token_id", encoder.prefix() ? Json(*encoder.prefix()) : Json()},
          {"softmax_dtype", options.text("--softmax-dtype")},
          {"empty_continuation", options.text("--empty-continuation")},
          {"truncated_documents", std::move(truncated)},
          {"nan_requests", std::move(nan)},
          {"gold_outside_choices", std::move(outside)},
          {"tokens_run", scorer.tokens_run()},
          {"tokens_without_sharing", scorer.tokens_asked()}};
}

void warn_of_scores(const std::vector<TaskScores>& tasks, int64_t max_length) {
  for (const TaskScores& task : tasks) {
    const std::string& name = task.documents->task->name;
    const auto rows = static_cast<int64_t>(task.documents->documents.size());
    if (task.truncated > 0) {
      log::warn("{}: {} of {} rows are longer than {} tokens and lost the beginning of their prompt", name,
                task.truncated, rows, max_length);
    }
    if (task.gold_outside > 0) {
      log::warn("{}: {} rows have a right answer that is none of the choices: they count as wrong", name,
                task.gold_outside);
    }
    if (task.nan > 0) log::warn("{}: {} log-likelihoods are NaN: its scores mean nothing", name, task.nan);
  }
}

/// What a score depends on, below the table.
std::string footer_of(const std::vector<TaskScores>& tasks, const PairEncoder& encoder, const Options& options,
                      int64_t max_length) {
  std::string rows;
  for (const TaskScores& task : tasks) {
    rows +=
        fmt::format("{}{} {}", rows.empty() ? "" : ", ", task.documents->task->name, task.documents->documents.size());
    if (task.documents->rows != static_cast<int64_t>(task.documents->documents.size())) {
      rows += fmt::format(" of {}", task.documents->rows);
    }
  }
  return fmt::format("rows: {}; BOS {}; softmax {}; max_length {}; acc_norm divides by characters\n", rows,
                     encoder.adds_bos() ? "on" : "off", options.text("--softmax-dtype"), max_length);
}

const Task& task_named(const std::string& name) {
  const std::vector<std::string> names = {name};
  return *find_tasks(names).front();
}

}  // namespace

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
    table += fmt::format("{:<20} {:<20} {:<18} {}\n", task.name, fmt::join(task.tags, ","),
                         task.definition["output_type"].get<std::string>(), task.definition.value("dataset_path", ""));
  }
  write_stdout(table);
  return kExitOk;
}

int describe_task(const Options& options) {
  const Task& task = task_named(options.text("--describe"));
  std::vector<std::string> metrics;
  for (const TaskMetric& metric : task.metrics) metrics.push_back(metric.name);
  std::optional<EvalDocument> first;
  TaskDocuments documents;
  if (options.has("--data")) {
    DataFolder folder(options.text("--data"));
    documents = make_documents(task, folder, {.num_fewshot = options.find_integer("--num-fewshot"), .limit = 1});
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

int evaluate_tasks(const Options& options) {
  device_of(options);
  const double start_time = unix_time();
  const std::string model_path = options.text("MODEL");
  for (const char* name : {"MODEL", "--data", "--out"}) {
    if (const auto path = options.find_text(name)) require_utf8_path(name, *path);
  }
  const auto out = options.find_text("--out");
  const auto report_path = options.find_text("--report");
  if (options.flag("--log-samples") && !out) {
    throw Error(ErrorKind::usage, "--log-samples writes beside the results: name a folder with --out");
  }
  if (!options.has("--data")) throw Error(ErrorKind::usage, "--tasks needs --data, the folder with their files");
  if (report_path) {
    Report::require_writable(*report_path, options.flag("--force"), {model_path, options.text("--data")});
  }
  const std::vector<int64_t> seeds = parse_seeds(options.text("--seed"));
  const std::vector<TaskDocuments> documents = read_tasks(options, static_cast<uint64_t>(seeds[3]));

  Report report("keel.eval/1", "keel-eval", options.arguments());
  const ScoredModel scored = open_scored_model(options);
  const auto& tokenizer = scored.tokenizer;
  const int64_t max_length = options.find_integer("--max-length").value_or(scored.positions());
  if (max_length > scored.positions()) {
    log::warn("--max-length {} is more than the {} positions the model was made for", max_length, scored.positions());
  }
  PairEncoder encoder(tokenizer, encoder_options(options));
  const std::vector<ScoreRequest> requests = encode_requests(documents, encoder, max_length);
  const int32_t first_token = requests.front().context.front();
  log::info("the first request begins with {} ({})", python_repr(std::string_view(tokenizer->piece(first_token))),
            first_token);

  const ScorerSizes sizes = scorer_sizes(options, requests, max_length);
  Context ctx(threads_of(options));
  InferenceModel model(ctx, scored.folder, sizes.decoder_options(), [] { return stop_requested(); });
  const std::unique_ptr<Progress> progress = make_progress(options);
  progress->start("score", static_cast<int64_t>(requests.size()), "requests");
  Scorer scorer(model, sizes);
  const std::vector<Score> scores = scorer.run(requests, [&](int64_t done) { progress->update(done); });
  progress->finish();
  const std::vector<TaskScores> tasks =
      score_tasks(documents, scores, options.integer("--bootstrap-iters"), threads_of(options));
  warn_of_scores(tasks, max_length);

  HarnessRun run{.model = model_path,
                 .parameters = count_parameters(scored.config).total,
                 .max_length = max_length,
                 .batch_tokens = options.integer("--batch-tokens"),
                 .limit = options.find_real("--limit"),
                 .num_fewshot = options.find_integer("--num-fewshot"),
                 .bootstrap_iterations = options.integer("--bootstrap-iters"),
                 .seeds = seeds,
                 .log_samples = options.flag("--log-samples"),
                 .start_time = start_time,
                 .end_time = unix_time(),
                 .environment = fmt::format("keel-eval {}", version()),
                 .keel = keel_section(options, tasks, encoder, scorer)};
  for (const auto& id : {tokenizer->pad_id(), tokenizer->eos_id(), tokenizer->bos_id()}) {
    run.tokens.push_back(token_named(*tokenizer, id));
  }
  const Json results = harness_results(run, tasks);
  if (out) {
    const HarnessPaths paths = harness_paths(*out, model_path, harness_date(start_time));
    write_harness_files(paths, results, tasks, run.log_samples);
    log::info("results: {}", paths.results.string());
  }
  if (report_path) {
    scored.add_to(report);
    for (const TaskDocuments& task : documents) {
      for (const RowFile& file : task.files) {
        report.add_input({.path = file.path, .bytes = file.bytes, .sha256 = file.sha256});
      }
    }
    report.results() = results;
    report.write(*report_path);
  }
  if (report_path != "-") {
    write_stdout(options.flag("--json") ? json_text(results, 2) + "\n"
                                        : harness_table(tasks) + footer_of(tasks, encoder, options, max_length));
  }
  const bool any_nan = std::any_of(tasks.begin(), tasks.end(), [](const TaskScores& task) { return task.nan > 0; });
  return any_nan ? kExitDiverged : kExitOk;
}

}  // namespace keel
