#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "device_option.h"
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
#include "keel/tokenizer/byte_source.h"
#include "keel/tokenizer/tokenizer.h"
#include "keel/tokenizer/utf8_repair.h"
#include "weights_option.h"

namespace keel {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{1} << 30;

/// The BOS that goes before each window, if any.
std::optional<int32_t> bos_of(const Options& options, const Tokenizer& tokenizer) {
  const std::string mode = options.text("--compat-bos");
  if (mode == "off") return std::nullopt;
  if (mode == "on" && !tokenizer.bos_id()) {
    throw Error(ErrorKind::usage, "the tokenizer has no BOS token", "--compat-bos");
  }
  return tokenizer.bos_id();
}

/// One text, and what came of it.
struct Text {
  std::string path;
  std::vector<int32_t> tokens;
  TextCounts counts;
  double log_likelihood = 0;
};

std::vector<Text> read_texts(const Options& options, const Tokenizer& tokenizer, const TextWindows& windows) {
  std::vector<Text> texts;
  for (const std::string& path : options.texts("--text")) {
    const std::string content = read_source(path, kMaxTextBytes);
    if (const int64_t at = find_invalid_utf8(content); at >= 0) {
      throw Error(ErrorKind::format, fmt::format("not UTF-8 at byte {}", at), path);
    }
    int64_t lost_bytes = 0;
    Text text{.path = path, .tokens = tokenizer.encode(content, SpecialText::plain, &lost_bytes)};
    if (lost_bytes > 0) {
      log::warn("{}: the tokenizer has no token for {} of {} bytes: figures per word and byte mean little", path,
                lost_bytes, content.size());
    }
    text.counts = {.words = count_words(content), .bytes = static_cast<int64_t>(content.size())};
    if (cut_windows(std::ssize(text.tokens), windows).empty()) {
      throw Error(ErrorKind::format, "the text has no token to predict", path);
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

/// Room for the longest window, and for batches of --batch-tokens where the texts have so many.
ScorerSizes scorer_sizes(const Options& options, const TextWindows& windows, const std::vector<Text>& texts) {
  int64_t longest = 0, all = 0;
  for (const Text& text : texts) {
    for (const TextWindow& window : cut_windows(std::ssize(text.tokens), windows)) {
      const int64_t length = window.end - window.begin + (windows.bos ? 1 : 0);
      longest = std::max(longest, length);
      all += length;
    }
  }
  return {.max_length = longest, .max_tokens = std::min(options.integer("--batch-tokens"), all)};
}

/// Scores every text; progress counts windows.
void score_texts(const Options& options, Scorer& scorer, const TextWindows& windows, std::vector<Text>& texts) {
  int64_t all = 0, done = 0;
  for (const Text& text : texts) all += std::ssize(cut_windows(std::ssize(text.tokens), windows));
  const std::unique_ptr<Progress> progress = make_progress(options);
  progress->start("score", all, "windows");
  for (Text& text : texts) {
    const TextScore score =
        score_text(scorer, text.tokens, windows, [&](int64_t of_text) { progress->update(done + of_text); });
    text.log_likelihood = score.log_likelihood;
    text.counts.tokens = score.tokens;
    done += std::ssize(cut_windows(std::ssize(text.tokens), windows));
  }
  progress->finish();
}

Json results_of(const std::vector<Text>& all) {
  double total = 0;
  TextCounts counts;
  Json texts = Json::array();
  for (const Text& text : all) {
    Json json{{"path", text.path}};
    json.update(perplexity_json(text.log_likelihood, text.counts));
    texts.push_back(std::move(json));
    total += text.log_likelihood;
    counts.add(text.counts);
  }
  Json results = perplexity_json(total, counts);
  results["texts"] = std::move(texts);
  return results;
}

/// A number of the results as text; one that is none by its name.
std::string cell(const Json& result, const std::string& key, int digits) {
  if (result[key].is_number()) return fmt::format("{:.{}f}", result[key].get<double>(), digits);
  return result.value(key + "_non_finite", "nan");
}

std::string table_of(const Json& results) {
  std::string table = fmt::format("{:<32} {:>10} {:>12} {:>12} {:>12} {:>10}\n", "text", "tokens", "nats/token",
                                  "token ppl", "word ppl", "bits/byte");
  const auto row = [&](const std::string& name, const Json& r) {
    table += fmt::format("{:<32} {:>10} {:>12} {:>12} {:>12} {:>10}\n", name, r["tokens"].get<int64_t>(),
                         cell(r, "nats_per_token", 6), cell(r, "token_perplexity", 4), cell(r, "word_perplexity", 4),
                         cell(r, "bits_per_byte", 6));
  };
  for (const Json& text : results["texts"]) {
    row(std::filesystem::path(text["path"].get<std::string>()).filename().string(), text);
  }
  if (results["texts"].size() > 1) row("all", results);
  return table;
}

/// What the numbers depend on, below the table.
std::string footer_of(const TextWindows& windows, const std::string& weights) {
  return fmt::format("window {}; stride {}; BOS {}; weights {}\n", windows.window,
                     windows.stride ? std::to_string(*windows.stride) : "none",
                     windows.bos ? "before each window" : "off", weights);
}

void check_outputs(const Options& options) {
  std::vector<std::filesystem::path> kept{options.text("MODEL")};
  for (const std::string& text : options.texts("--text")) kept.emplace_back(text);
  for (const char* name : {"--out", "--report"}) {
    if (const auto path = options.find_text(name)) Report::require_writable(*path, options.flag("--force"), kept);
  }
}

}  // namespace

int evaluate_texts(const Options& options) {
  const DeviceChoice device = device_choice(options);
  check_outputs(options);
  Report report("keel.eval/1", "keel-eval", options.arguments());
  const ScoredModel scored = open_scored_model(options);
  const TextWindows windows{.window = options.find_integer("--window").value_or(scored.positions()),
                            .stride = options.find_integer("--stride"),
                            .bos = bos_of(options, *scored.tokenizer)};
  if (windows.window > scored.positions()) {
    log::warn("a window of {} is longer than the {} positions the model was made for", windows.window,
              scored.positions());
  }
  std::vector<Text> texts = read_texts(options, *scored.tokenizer, windows);
  const ScorerSizes sizes = scorer_sizes(options, windows, texts);
  Context ctx(device, threads_of(options));
  InferenceModel model(
      ctx, scored.folder, sizes.decoder_options(), [] { return stop_requested(); }, weights_of(options));
  const Stopwatch stopwatch;
  Scorer scorer(model, sizes);
  score_texts(options, scorer, windows, texts);

  report.config() = {{"window", windows.window},
                     {"stride", windows.stride ? Json(*windows.stride) : Json()},
                     {"compat_bos", options.text("--compat-bos")},
                     {"bos_id", windows.bos ? Json(*windows.bos) : Json()},
                     {"batch_tokens", options.integer("--batch-tokens")},
                     {"weights", options.text("--weights")}};
  Json results = results_of(texts);
  set_number(results, "seconds", stopwatch.seconds());
  scored.add_to(report);
  for (const Text& text : texts) report.add_input_file(text.path);
  report.results() = results;
  if (options.find_text("--out") != "-" && options.find_text("--report") != "-") {
    write_stdout(options.flag("--json") ? json_text(results, 2) + "\n"
                                        : table_of(results) + footer_of(windows, options.text("--weights")));
  }
  for (const char* name : {"--out", "--report"}) {
    if (const auto path = options.find_text(name)) report.write(*path);
  }
  const bool is_nan =
      std::any_of(texts.begin(), texts.end(), [](const Text& text) { return std::isnan(text.log_likelihood); });
  if (is_nan) log::error("the model gives NaN: its perplexities mean nothing");
  return is_nan ? kExitDiverged : kExitOk;
}

}  // namespace keel
