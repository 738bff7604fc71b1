/// keel-generate: continues prompts. Options, calls into the library, exit code.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/log.h"
#include "keel/base/options.h"
#include "keel/base/output.h"
#include "keel/base/report.h"
#include "keel/base/signals.h"
#include "keel/base/tool.h"
#include "keel/generate/generator.h"
#include "keel/inference/stop_ids.h"
#include "keel/model/model_config_json.h"
#include "keel/tokenizer/text_stream.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

Tool generate_tool() {
  Tool tool{.name = "keel-generate", .summary = "Continue prompts with a model."};
  tool.options = {
      {.name = "MODEL",
       .type = OptionType::directory,
       .required = true,
       .help = "Model folder, checkpoint, or run (its newest complete checkpoint)."},
      {.name = "--prompt",
       .value = "TEXT",
       .repeatable = true,
       .help = "Text to continue; without any prompt the model starts a document."},
      {.name = "--prompts", .type = OptionType::file, .value = "FILE", .help = "One prompt a line; - is stdin."},
      {.name = "--max-tokens",
       .type = OptionType::integer,
       .value = "N",
       .initial = "128",
       .unit = "tokens",
       .minimum = 1,
       .maximum = 1e9,
       .help = "Most tokens to generate for each."},
      {.name = "--temperature",
       .type = OptionType::real,
       .initial = "1",
       .minimum = 0,
       .maximum = 1e6,
       .help = "0 is greedy: always the most probable token."},
      {.name = "--top-k",
       .type = OptionType::integer,
       .value = "K",
       .initial = "0",
       .minimum = 0,
       .maximum = 1e9,
       .help = "Draw from the K most probable tokens only; 0 is all."},
      {.name = "--top-p",
       .type = OptionType::real,
       .value = "P",
       .initial = "1",
       .minimum = 0,
       .maximum = 1,
       .above_minimum = true,
       .help = "Draw from the fewest tokens whose probabilities add up to P."},
      {.name = "--stop",
       .value = "TEXT",
       .repeatable = true,
       .help = "End before this text; the end-of-document token always ends."},
      {.name = "--ignore-eos", .type = OptionType::flag, .help = "Go on after an end-of-document token."},
      {.name = "--num",
       .type = OptionType::integer,
       .value = "N",
       .initial = "1",
       .minimum = 1,
       .maximum = 1e6,
       .help = "Continuations of each prompt."},
      {.name = "--bos",
       .type = OptionType::choice,
       .initial = "auto",
       .choices = {"auto", "on", "off"},
       .help = "Begin each prompt with the BOS token; auto does what the tokenizer's files say."},
      {.name = "--echo", .type = OptionType::flag, .help = "Print the prompt before its continuation."},
      {.name = "--batch-sequences",
       .type = OptionType::integer,
       .value = "N",
       .initial = "16",
       .minimum = 1,
       .maximum = 1e5,
       .help = "Continuations that are made side by side; their results do not depend on it."},
      {.name = "--json", .type = OptionType::flag, .help = "Print one JSON object a continuation."},
      seed_option(),
      threads_option(),
      report_option(),
  };
  for (Option& option : device_options()) tool.options.push_back(std::move(option));
  tool.examples = {
      {"keel-generate runs/keel-64 --prompt 'Once upon a time'", "one continuation, as it comes"},
      {"keel-generate hf/model --prompts prompts.txt --temperature 0 --json > out.jsonl", "greedy, one object a line"},
      {"keel-generate runs/keel-64 --num 4 --top-p 0.9 --seed 7", "four documents from the model's mind"},
  };
  return tool;
}

std::vector<std::string> read_prompts(const Options& options) {
  std::vector<std::string> prompts = options.texts("--prompt");
  if (const auto file = options.find_text("--prompts")) {
    const std::string text =
        *file == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(*file);
    size_t at = 0;
    while (at < text.size()) {
      const size_t end = std::min(text.find('\n', at), text.size());
      prompts.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    if (prompts.empty()) throw Error(ErrorKind::format, "no prompts", *file);
  }
  if (prompts.empty()) prompts.emplace_back();
  return prompts;
}

/// A continuation on its way to stdout.
struct Continuation {
  std::string prompt;
  size_t prompt_tokens = 0;
  TextStream stream;
  std::vector<int32_t> tokens = {};
  std::string text = {}, unprinted = {};
  std::optional<FinishReason> reason = {};
};

class Session {
 public:
  Session(const Options& options, const ModelFolder& folder, const ModelConfig& config)
      : options_(options),
        tokenizer_(load_model_tokenizer(folder.tokenizer_path, config.vocab_size, folder.path)),
        stop_ids_(stop_ids(folder)) {
    if (tokenizer_->eos_id() && stop_ids_.empty()) stop_ids_ = {*tokenizer_->eos_id()};
    const std::vector<std::string> prompts = read_prompts(options);
    for (const std::string& prompt : prompts) {
      for (int64_t n = 0; n < options.integer("--num"); ++n) add(prompt);
    }
  }

  const std::vector<GenerationRequest>& requests() const { return requests_; }
  const std::vector<Continuation>& continuations() const { return continuations_; }

  bool on_token(int64_t request, int32_t id) {
    Continuation& c = continuations_[request];
    c.tokens.push_back(id);
    const bool is_stop = std::find(requests_[request].stop_ids.begin(), requests_[request].stop_ids.end(), id) !=
                         requests_[request].stop_ids.end();
    std::string text;
    const bool goes_on = is_stop || c.stream.append(id, text);
    take(request, text);
    return goes_on;
  }

  void on_finish(int64_t request, FinishReason reason) {
    Continuation& c = continuations_[request];
    std::string text;
    if (reason != FinishReason::stopped) c.stream.finish(text);
    c.reason = reason;
    take(request, text);
    while (printing_ < continuations_.size() && continuations_[printing_].reason) end_of(printing_++);
    if (printing_ < continuations_.size()) take(static_cast<int64_t>(printing_), "");
  }

 private:
  std::vector<int32_t> prompt_ids(const std::string& prompt) const {
    std::vector<int32_t> ids;
    const std::string bos = options_.text("--bos");
    if (bos == "on" && !tokenizer_->bos_id()) throw Error(ErrorKind::usage, "the tokenizer has no BOS token", "--bos");
    if (bos == "on") ids.push_back(*tokenizer_->bos_id());
    for (int32_t id : tokenizer_->encode(prompt)) ids.push_back(id);
    if (!ids.empty()) return ids;
    const std::optional<int32_t> start =
        tokenizer_->bos_id() && bos != "off" ? tokenizer_->bos_id() : tokenizer_->eos_id();
    if (!start) throw Error(ErrorKind::usage, "an empty prompt and a tokenizer without BOS and EOS", "--prompt");
    return {*start};
  }

  void add(const std::string& prompt) {
    GenerationRequest request{.prompt = prompt_ids(prompt), .max_tokens = options_.integer("--max-tokens")};
    if (!options_.flag("--ignore-eos")) request.stop_ids = stop_ids_;
    request.sampling = {.temperature = options_.real("--temperature"),
                        .top_k = options_.integer("--top-k"),
                        .top_p = options_.real("--top-p")};
    request.seed = static_cast<uint64_t>(options_.find_integer("--seed").value_or(0));
    request.stream = requests_.size();
    continuations_.push_back(
        {.prompt = prompt,
         .prompt_tokens = request.prompt.size(),
         .stream = TextStream(tokenizer_->make_decoder(), options_.texts("--stop"), request.prompt)});
    requests_.push_back(std::move(request));
  }

  /// More text of a continuation; that of the one whose turn it is goes out at once.
  void take(int64_t request, const std::string& text) {
    Continuation& c = continuations_[request];
    c.text += text;
    c.unprinted += text;
    if (options_.flag("--json") || static_cast<size_t>(request) != printing_) return;
    if (!std::exchange(started_, true)) write_stdout(options_.flag("--echo") ? c.prompt : "");
    write_stdout(c.unprinted);
    flush_stdout();
    c.unprinted.clear();
  }

  void end_of(size_t index) {
    Continuation& c = continuations_[index];
    if (options_.flag("--json")) {
      write_stdout(json_text(Json{{"index", index},
                                  {"prompt", c.prompt},
                                  {"text", c.text},
                                  {"tokens", c.tokens},
                                  {"prompt_tokens", c.prompt_tokens},
                                  {"finish_reason", to_string(*c.reason)}}) +
                   "\n");
    } else {
      take(static_cast<int64_t>(index), "");
      write_stdout(index + 1 < continuations_.size() ? "\n---\n" : "\n");
    }
    flush_stdout();
    started_ = false;
  }

  const Options& options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> stop_ids_;
  std::vector<GenerationRequest> requests_;
  std::vector<Continuation> continuations_;
  size_t printing_ = 0;
  bool started_ = false;
};

int run_keel_generate(const Options& options) {
  device_of(options);
  Report report("keel.generate/1", "keel-generate", options.arguments());
  const ModelFolder folder = open_model_folder(options.text("MODEL"));
  for (const std::string& warning : folder.warnings) log::warn("{}", warning);
  const ModelConfig config = parse_model_config(folder.config_text, folder.config_path);
  Session session(options, folder, config);
  constexpr int64_t kBatchTokens = 2048;
  const GeneratorSizes sizes = generator_sizes(session.requests(), config.max_position_embeddings,
                                               options.integer("--batch-sequences"), kBatchTokens);
  Context ctx(threads_of(options));
  InferenceModel model(ctx, folder, sizes.decoder_options(), [] { return stop_requested(); });
  const Stopwatch stopwatch;
  Generator(model, sizes)
      .run(session.requests(),
           {.on_token = [&](int64_t request, int32_t id) { return session.on_token(request, id); },
            .on_finish = [&](int64_t request, FinishReason reason) { session.on_finish(request, reason); }});
  const double seconds = stopwatch.seconds();
  int64_t prompt_tokens = 0, tokens = 0;
  for (const Continuation& c : session.continuations()) {
    prompt_tokens += static_cast<int64_t>(c.prompt_tokens);
    tokens += static_cast<int64_t>(c.tokens.size());
  }
  log::info("{} tokens after {} of prompt in {:.2f} s: {:.1f} tokens/s", tokens, prompt_tokens, seconds,
            static_cast<double>(tokens) / seconds);
  if (const auto file = options.find_text("--report")) {
    Json& results = report.results();
    results = {{"continuations", session.continuations().size()}, {"prompt_tokens", prompt_tokens}, {"tokens", tokens}};
    set_number(results, "seconds", seconds);
    set_number(results, "tokens_per_second", static_cast<double>(tokens) / seconds);
    report.write(*file);
  }
  return kExitOk;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::generate_tool(), keel::run_keel_generate);
}
