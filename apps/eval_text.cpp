#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "eval_modes.h"
#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/log.h"
#include "keel/base/output.h"
#include "keel/base/report.h"
#include "keel/base/signals.h"
#include "keel/base/tool.h"
#include "keel/eval/perplexity.h"
#include "keel/eval/python_text.h"
#include "keel/eval/scorer.h"
#include "keel/eval/text_windows.h"
#include "keel/tokenizer/tokenizer.h"
#include "keel/tokenizer/utf8_repair.h"

namespace keel {
namespace {

/// The BOS that goes before each window, if any.
std::optional<int32_t> bos_of(const Options& options, const Tokenizer& tokenizer) {
  const std::string mode = options.text("--compat-bos");
  if (mode == "off") return std::nullopt;
  if (mode == "on" && !tokenizer.bos_id()) {
    throw Error(ErrorKind::usage, "the tokenizer has no BOS token", "--compat-bos");
  }
  return tokenizer.bos_id();
}

/// One text and where its requests are among all.
struct Text {
  std::string path;
  TextCounts counts;
  size_t first_request = 0, end_request = 0;
};

struct Texts {
  std::vector<Text> texts;
  std::vector<ScoreRequest> requests;
};

Texts read_texts(const Options& options, const Tokenizer& tokenizer, const TextWindows& windows) {
  Texts all;
  for (const std::string& path : options.texts("--text")) {
    const std::string content = read_file(path);
    if (const int64_t at = find_invalid_utf8(content); at >= 0) {
      throw Error(ErrorKind::format, fmt::format("not UTF-8 at byte {}", at), path);
    }
    Text text{.path = path};
    text.counts = {.words = count_words(content), .bytes = static_cast<int64_t>(content.size())};
    text.first_request = all.requests.size();
    for (ScoreRequest& request : text_requests(tokenizer.encode(content), windows)) {
      text.counts.tokens += static_cast<int64_t>(request.continuation.size());
      all.requests.push_back(std::move(request));
    }
    text.end_request = all.requests.size();
    if (text.counts.tokens == 0) throw Error(ErrorKind::format, "the text has no token to predict", path);
    all.texts.push_back(std::move(text));
  }
  return all;
}

std::string table_of(const Json& results) {
  std::string table = fmt::format("{:<32} {:>10} {:>12} {:>12} {:>12} {:>10}\n", "text", "tokens", "nats/token",
                                  "token ppl", "word ppl", "bits/byte");
  const auto row = [&](const std::string& name, const Json& r) {
    table += fmt::format("{:<32} {:>10} {:>12.6f} {:>12.4f} {:>12.4f} {:>10.6f}\n", name, r["tokens"].get<int64_t>(),
                         r["nats_per_token"].get<double>(), r["token_perplexity"].get<double>(),
                         r["word_perplexity"].get<double>(), r["bits_per_byte"].get<double>());
  };
  for (const Json& text : results["texts"]) {
    row(std::filesystem::path(text["path"].get<std::string>()).filename().string(), text);
  }
  if (results["texts"].size() > 1) row("all", results);
  return table;
}

Json results_of(const Texts& all, const std::vector<Score>& scores) {
  double total = 0;
  TextCounts counts;
  Json texts = Json::array();
  for (const Text& text : all.texts) {
    double log_likelihood = 0;
    for (size_t i = text.first_request; i < text.end_request; ++i) log_likelihood += scores[i].log_likelihood;
    Json json{{"path", text.path}};
    json.update(perplexity_json(log_likelihood, text.counts));
    texts.push_back(std::move(json));
    total += log_likelihood;
    counts.add(text.counts);
  }
  Json results = perplexity_json(total, counts);
  results["texts"] = std::move(texts);
  return results;
}

}  // namespace

int evaluate_texts(const Options& options) {
  device_of(options);
  std::vector<std::filesystem::path> kept{options.text("MODEL")};
  for (const std::string& text : options.texts("--text")) kept.emplace_back(text);
  for (const char* name : {"--out", "--report"}) {
    if (const auto path = options.find_text(name)) Report::require_writable(*path, options.flag("--force"), kept);
  }
  Report report("keel.eval/1", "keel-eval", options.arguments());
  const ScoredModel scored = open_scored_model(options);
  const TextWindows windows{.window = options.find_integer("--window").value_or(scored.positions()),
                            .stride = options.find_integer("--stride"),
                            .bos = bos_of(options, *scored.tokenizer)};
  if (windows.window > scored.positions()) {
    log::warn("a window of {} is longer than the {} positions the model was made for", windows.window,
              scored.positions());
  }
  const Texts all = read_texts(options, *scored.tokenizer, windows);
  const ScorerSizes sizes{.max_length = windows.window, .max_tokens = options.integer("--batch-tokens")};
  Context ctx(threads_of(options));
  InferenceModel model(ctx, scored.folder, sizes.decoder_options(), [] { return stop_requested(); });
  const std::unique_ptr<Progress> progress = make_progress(options);
  progress->start("score", static_cast<int64_t>(all.requests.size()), "windows");
  const Stopwatch stopwatch;
  Scorer scorer(model, sizes);
  const std::vector<Score> scores = scorer.run(all.requests, [&](int64_t done) { progress->update(done); });
  progress->finish();

  report.config() = {{"window", windows.window},
                     {"stride", windows.stride ? Json(*windows.stride) : Json()},
                     {"compat_bos", options.text("--compat-bos")},
                     {"bos_id", windows.bos ? Json(*windows.bos) : Json()},
                     {"batch_tokens", sizes.max_tokens}};
  Json results = results_of(all, scores);
  set_number(results, "seconds", stopwatch.seconds());
  scored.add_to(report);
  for (const Text& text : all.texts) report.add_input_file(text.path);
  report.results() = results;
  bool on_stdout = false;
  for (const char* name : {"--out", "--report"}) {
    if (const auto path = options.find_text(name)) {
      report.write(*path);
      on_stdout = on_stdout || *path == "-";
    }
  }
  if (!on_stdout) write_stdout(options.flag("--json") ? json_text(results, 2) + "\n" : table_of(results));
  const bool is_nan =
      std::any_of(scores.begin(), scores.end(), [](const Score& score) { return std::isnan(score.log_likelihood); });
  if (is_nan) log::warn("the model gives NaN: its perplexities mean nothing");
  return is_nan ? kExitDiverged : kExitOk;
}

}  // namespace keel
