#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "device_option.h"
#include "eval_modes.h"
#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/output.h"
#include "keel/base/report.h"
#include "keel/base/signals.h"
#include "keel/base/tool.h"
#include "keel/base/utf8.h"
#include "keel/base/version.h"
#include "keel/eval/harness_files.h"
#include "keel/eval/harness_output.h"
#include "keel/eval/pair_encoder.h"
#include "keel/eval/python_text.h"
#include "keel/tokenizer/tokenizer.h"
#include "weights_option.h"

namespace keel {
namespace {

/// {"task": [rows]} of --samples.
Json read_samples(const Options& options) {
  const auto given = options.find_text("--samples");
  if (!given) return Json::object();
  if (options.has("--limit")) throw Error(ErrorKind::usage, "--samples and --limit are two choices of rows: give one");
  const bool is_text = given->find('{') != std::string::npos;
  const JsonDocument document =
      is_text ? JsonDocument(*given, "--samples", ErrorKind::usage) : read_json(*given, ErrorKind::config);
  const auto is_row = [](const Json& row) { return row.is_number_unsigned() && row.get<uint64_t>() <= INT64_MAX; };
  const Json& root = document.root();
  const bool is_fine =
      root.is_object() && !root.empty() && std::all_of(root.begin(), root.end(), [&](const Json& rows) {
        return rows.is_array() && !rows.empty() && std::all_of(rows.begin(), rows.end(), is_row);
      });
  if (!is_fine) throw document.error("", "samples are an object of lists of row numbers, none of them empty");
  return root;
}

PromptOptions prompt_options(const Options& options, const Task& task, const Json& samples, uint64_t seed) {
  PromptOptions out{.num_fewshot = options.find_integer("--num-fewshot"),
                    .limit = options.find_real("--limit"),
                    .fewshot_seed = seed};
  if (out.limit && *out.limit >= 1 && *out.limit != std::floor(*out.limit)) {
    throw Error(ErrorKind::usage, fmt::format("{} rows: a whole number, or a part below 1", *out.limit), "--limit");
  }
  if (samples.contains(task.name)) {
    auto rows = samples[task.name].get<std::vector<int64_t>>();
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    out.samples = std::move(rows);
  } else if (!samples.empty()) {
    log::warn("{}: --samples names none of its rows: all are scored", task.name);
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
    out.push_back(make_documents(*task, folder, prompt_options(options, *task, samples, seed)));
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

/// The requests of all tasks, one after another. Rows that cannot be scored are an error that names the first and
/// counts them.
std::vector<ScoreRequest> encode_requests(const std::vector<TaskDocuments>& tasks, PairEncoder& encoder,
                                          int64_t max_length) {
  std::vector<ScoreRequest> requests;
  std::optional<Error> first;
  std::string where;
  int64_t unfit = 0;
  const auto encode = [&](const EvalDocument& document, size_t i) {
    requests.push_back(encoder.encode(document.context, document.continuations[i]));
    const auto length = static_cast<int64_t>(requests.back().continuation.size());
    if (length <= max_length) return;
    throw Error(ErrorKind::usage,
                fmt::format("an answer of {} tokens is longer than max_length {}", length, max_length), "",
                "--max-length allows more, --samples chooses rows");
  };
  for (const TaskDocuments& task : tasks) {
    for (const EvalDocument& document : task.documents) {
      throw_if_stopped();
      for (size_t i = 0; i < document.continuations.size(); ++i) {
        try {
          encode(document, i);
        } catch (const Error& error) {
          ++unfit;
          if (first) continue;
          first = error;
          where = fmt::format("{}: row {}, request {}", task.task->name, document.doc_id, i);
        }
      }
    }
  }
  if (first) throw first->at(unfit == 1 ? where : fmt::format("{}, and {} more requests", where, unfit - 1));
  return requests;
}

ScorerSizes scorer_sizes(const Options& options, const std::vector<ScoreRequest>& requests, int64_t max_length) {
  size_t longest = 1, all = 0;
  for (const ScoreRequest& request : requests) {
    const size_t length = request.context.size() + request.continuation.size() - 1;
    longest = std::max(longest, length);
    all += length;
  }
  ScorerSizes sizes{.max_length = std::min(max_length, static_cast<int64_t>(longest)),
                    .max_tokens = std::min(options.integer("--batch-tokens"), static_cast<int64_t>(all))};
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

std::optional<HarnessRun::Token> token_named(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  if (!id) return std::nullopt;
  return HarnessRun::Token{tokenizer.piece(*id), *id};
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
          {"weights", options.text("--weights")},
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
    if (task.nan > 0) log::error("{}: {} log-likelihoods are NaN: its scores mean nothing", name, task.nan);
  }
}

/// What can be refused before anything is read. Where the harness's files go, if anywhere.
std::optional<HarnessOutput> check_outputs(const Options& options, double start_time) {
  (void)device_choice(options);
  const std::string model = options.text("MODEL");
  for (const char* name : {"MODEL", "--data", "--out"}) {
    if (const auto path = options.find_text(name)) require_utf8_path(name, *path);
  }
  const auto out = options.find_text("--out");
  if (options.flag("--log-samples") && !out) {
    throw Error(ErrorKind::usage, "--log-samples writes beside the results: name a folder with --out");
  }
  if (!options.has("--data")) throw Error(ErrorKind::usage, "--tasks needs --data, the folder with their files");
  if (out == "-") {
    throw Error(ErrorKind::usage, "with --tasks --out is a folder or a .json file", "--out -",
                "--json prints the results, --report - the report");
  }
  if (const auto path = options.find_text("--report")) {
    Report::require_writable(*path, options.flag("--force"), {model, options.text("--data")});
  }
  if (!out) return std::nullopt;
  HarnessOutput output(*out, model, start_time);
  output.require_writable();
  return output;
}

int64_t max_length_of(const Options& options, const ScoredModel& scored) {
  const int64_t max_length = options.find_integer("--max-length").value_or(scored.positions());
  if (max_length > scored.positions()) {
    log::warn("--max-length {} is more than the {} positions the model was made for", max_length, scored.positions());
  }
  return max_length;
}

/// A run of one model over some tasks.
struct Evaluation {
  std::vector<TaskDocuments> documents;
  std::vector<TaskScores> tasks;
  Json results;  ///< the harness's result file
};

Evaluation run_evaluation(const Options& options, const ScoredModel& scored, const std::vector<uint64_t>& seeds,
                          double start_time) {
  Evaluation out{.documents = read_tasks(options, seeds[3])};
  const int64_t max_length = max_length_of(options, scored);
  PairEncoder encoder(scored.tokenizer, encoder_options(options));
  const std::vector<ScoreRequest> requests = encode_requests(out.documents, encoder, max_length);
  if (encoder.lost_bytes() > 0) {
    log::warn("the tokenizer has no token for {} bytes of the prompts and answers: they are not seen by the model",
              encoder.lost_bytes());
  }
  const int32_t first_token = requests.front().context.front();
  log::info("the first prompt begins with token {} {}", first_token,
            python_repr(std::string_view(scored.tokenizer->piece(first_token))));

  const ScorerSizes sizes = scorer_sizes(options, requests, max_length);
  Context ctx(device_choice(options), threads_of(options));
  InferenceModel model(
      ctx, scored.folder, sizes.decoder_options(), [] { return stop_requested(); }, weights_of(options));
  const std::unique_ptr<Progress> progress = make_progress(options);
  progress->start("score", static_cast<int64_t>(requests.size()), "requests");
  Scorer scorer(model, sizes);
  const std::vector<Score> scores = scorer.run(requests, [&](int64_t done) { progress->update(done); });
  progress->finish();
  out.tasks = score_tasks(out.documents, scores, options.integer("--bootstrap-iters"), threads_of(options));
  warn_of_scores(out.tasks, max_length);

  const Tokenizer& tokenizer = *scored.tokenizer;
  const HarnessRun run{.model = options.text("MODEL"),
                       .parameters = count_parameters(scored.config).total,
                       .max_length = max_length,
                       .batch_tokens = options.integer("--batch-tokens"),
                       .limit = options.find_real("--limit"),
                       .num_fewshot = options.find_integer("--num-fewshot"),
                       .bootstrap_iterations = options.integer("--bootstrap-iters"),
                       .seeds = seeds,
                       .device = to_string(device_choice(options)),
                       .pad = token_named(tokenizer, tokenizer.pad_id()),
                       .eos = token_named(tokenizer, tokenizer.eos_id()),
                       .bos = token_named(tokenizer, tokenizer.bos_id()),
                       .log_samples = options.flag("--log-samples"),
                       .start_time = start_time,
                       .end_time = unix_time(),
                       .environment = fmt::format("keel-eval {}", version()),
                       .keel = keel_section(options, out.tasks, encoder, scorer)};
  out.results = harness_results(run, out.tasks);
  return out;
}

/// What a score depends on, below the table.
std::string footer_of(const Evaluation& evaluation, const Options& options) {
  std::string rows;
  for (const TaskScores& task : evaluation.tasks) {
    const auto scored = static_cast<int64_t>(task.documents->documents.size());
    rows += fmt::format("{}{} {}", rows.empty() ? "" : ", ", task.documents->task->name, scored);
    if (task.documents->rows != scored) rows += fmt::format(" of {}", task.documents->rows);
  }
  return fmt::format("rows: {}; BOS {}; softmax {}; weights {}; max_length {}; acc_norm divides by characters\n", rows,
                     evaluation.results["keel"]["adds_bos"].get<bool>() ? "on" : "off", options.text("--softmax-dtype"),
                     options.text("--weights"), evaluation.results["max_length"].get<int64_t>());
}

/// The settings of a run, for its report.
Json settings_of(const Options& options, const Json& results) {
  Json config{{"tasks", options.texts("--tasks")}, {"data", options.text("--data")}};
  for (const char* key : {"limit", "bootstrap_iters", "fewshot_seed"}) config[key] = results["config"][key];
  config["num_fewshot"] = results["n-shot"];
  config["max_length"] = results["max_length"];
  for (const char* key : {"compat_bos", "prefix_token_id", "softmax_dtype", "weights", "empty_continuation"}) {
    config[key] = results["keel"][key];
  }
  config["batch_tokens"] = options.integer("--batch-tokens");
  return config;
}

void write_report(const Options& options, const ScoredModel& scored, const Evaluation& evaluation, Report& report) {
  scored.add_to(report);
  for (const TaskDocuments& task : evaluation.documents) {
    for (const RowFile& file : task.files) {
      report.add_input({.path = file.path, .bytes = file.bytes, .sha256 = file.sha256});
    }
  }
  report.config() = settings_of(options, evaluation.results);
  report.results() = evaluation.results;
  report.write(options.text("--report"));
}

}  // namespace

std::vector<uint64_t> parse_seeds(const std::string& text) {
  std::vector<uint64_t> seeds;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const char* first = text.data() + at + (at < end && text[at] == '-' ? 1 : 0);  // CPython seeds by the magnitude
    uint64_t seed = 0;
    const auto result = std::from_chars(first, text.data() + end, seed);
    if (result.ec != std::errc() || result.ptr != text.data() + end) {
      throw Error(ErrorKind::usage, "seeds are whole numbers of at most 64 bits, one or four: '" + text + "'",
                  "--seed");
    }
    seeds.push_back(seed);
    at = end + 1;
  }
  if (seeds.size() == 1) seeds.resize(4, seeds[0]);
  if (seeds.size() != 4) throw Error(ErrorKind::usage, "seeds are one number or four: '" + text + "'", "--seed");
  return seeds;
}

int evaluate_tasks(const Options& options) {
  const double start_time = unix_time();
  const std::vector<uint64_t> seeds = parse_seeds(options.text("--seed"));
  const std::optional<HarnessOutput> output = check_outputs(options, start_time);
  Report report("keel.eval/1", "keel-eval", options.arguments());
  const ScoredModel scored = open_scored_model(options);
  const Evaluation evaluation = run_evaluation(options, scored, seeds, start_time);

  // Shown first, so that they are not lost if they cannot be written.
  if (options.find_text("--report") != "-") {
    write_stdout(options.flag("--json") ? json_text(evaluation.results, 2) + "\n"
                                        : harness_table(evaluation.tasks) + footer_of(evaluation, options));
    flush_stdout();
  }
  if (output) {
    output->write(evaluation.results, evaluation.tasks, options.flag("--log-samples"));
    log::info("results: {}", output->results().string());
  }
  if (options.has("--report")) write_report(options, scored, evaluation, report);
  const bool any_nan = std::any_of(evaluation.tasks.begin(), evaluation.tasks.end(),
                                   [](const TaskScores& task) { return task.nan > 0; });
  return any_nan ? kExitDiverged : kExitOk;
}

}  // namespace keel
