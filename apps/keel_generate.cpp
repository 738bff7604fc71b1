/// keel-generate: continues prompts. Options, calls into the library, exit code.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "device_option.h"
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
#include "keel/tokenizer/byte_source.h"
#include "keel/tokenizer/prompt.h"
#include "keel/tokenizer/text_stream.h"
#include "keel/tokenizer/tokenizer.h"
#include "keel/tokenizer/utf8_repair.h"
#include "weights_option.h"

namespace keel {
namespace {

Option shown_seed_option() {
  Option seed = seed_option();
  seed.shown_default = "0";
  seed.brief = true;
  return seed;
}

Tool generate_tool() {
  Tool tool{.name = "keel-generate", .summary = "Continue prompts with a model."};
  tool.options = {
      {.name = "MODEL",
       .type = OptionType::directory,
       .required = true,
       .help = "Model folder, checkpoint, or run (its newest complete checkpoint)."},
      {.name = "PROMPTS",
       .type = OptionType::choice,
       .choices = {"-"},
       .help = "- is --prompts -: prompts from stdin."},
      {.name = "--prompt",
       .value = "TEXT",
       .repeatable = true,
       .help = "Text to continue; an empty one, or none at all, starts a document."},
      {.name = "--prompts",
       .type = OptionType::file,
       .value = "FILE",
       .help = "One prompt a line, an empty one too; - is stdin."},
      {.name = "--whole", .type = OptionType::flag, .help = "FILE or stdin is one prompt, line ends and all."},
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
       .help = "End before this text; without --ignore-eos an end-of-document token ends too."},
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
      {.name = "--special-in-text",
       .type = OptionType::choice,
       .initial = "parse",
       .choices = {"plain", "parse"},
       .help = "What the text of a control token (</s>) in a prompt becomes: that token, or text like any other.",
       .brief = false},
      {.name = "--echo", .type = OptionType::flag, .help = "Print the prompt before its continuation."},
      {.name = "--batch-sequences",
       .type = OptionType::integer,
       .value = "N",
       .initial = "16",
       .minimum = 1,
       .maximum = 1e5,
       .help = "Continuations that are made side by side; their results do not depend on it."},
      {.name = "--json", .type = OptionType::flag, .help = "Print one JSON object a continuation."},
      shown_seed_option(),
      threads_option(),
      weights_option(),
      progress_option(),
      report_option(),
      force_option(),
  };
  for (Option& option : device_options()) tool.options.push_back(std::move(option));
  tool.examples = {
      {"keel-generate runs/keel-64 --prompt 'Once upon a time'", "one continuation, as it comes"},
      {"keel-generate hf/model --prompts prompts.txt --temperature 0 --json > out.jsonl", "greedy, one object a line"},
      {"keel-generate runs/keel-64 --num 4 --top-p 0.9 --seed 7", "four documents from the model's mind"},
  };
  return tool;
}

/// A prompt and what errors call it.
struct Prompt {
  std::string text, where;
};

/// The lines of a file, as keel-tokenize ids takes them: without their line ends (LF or CRLF), empty ones too.
std::vector<Prompt> prompts_of_file(const std::string& file, bool whole) {
  constexpr int64_t kMaxBytes = int64_t{64} << 20;  // every prompt is encoded before the first is continued
  const std::string text = read_source(file, kMaxBytes);
  const std::string name = file == "-" ? "stdin" : file;
  if (whole) return {{text, name}};
  std::vector<Prompt> prompts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const bool carriage_return = end > at && text[end - 1] == '\r';
    prompts.push_back(
        {text.substr(at, end - at - (carriage_return ? 1 : 0)), fmt::format("{}:{}", name, prompts.size() + 1)});
    at = end + 1;
  }
  if (prompts.empty()) throw Error(ErrorKind::format, "no prompts", name);
  return prompts;
}

std::vector<Prompt> read_prompts(const Options& options) {
  const int sources = (options.is_given("--prompt") ? 1 : 0) + (options.is_given("--prompts") ? 1 : 0) +
                      (options.is_given("PROMPTS") ? 1 : 0);
  if (sources > 1) throw Error(ErrorKind::usage, "only one of --prompt, --prompts and - may be given");
  const auto file = options.is_given("PROMPTS") ? std::optional<std::string>("-") : options.find_text("--prompts");
  if (file) return prompts_of_file(*file, options.flag("--whole"));
  if (options.flag("--whole")) throw Error(ErrorKind::usage, "--whole needs --prompts FILE or -");
  std::vector<Prompt> prompts;
  for (const std::string& text : options.texts("--prompt")) {
    prompts.push_back({text, fmt::format("prompt {}", prompts.size() + 1)});
  }
  if (prompts.empty()) prompts.push_back({"", "no prompt"});
  return prompts;
}

std::vector<std::string> read_stops(const Options& options) {
  std::vector<std::string> stops = options.texts("--stop");
  for (const std::string& stop : stops) {
    if (stop.empty()) throw Error(ErrorKind::usage, "an empty text stops nothing", "--stop");
    if (find_invalid_utf8(stop) >= 0) throw Error(ErrorKind::format, "not UTF-8", "--stop");
  }
  return stops;
}

PromptBos bos_of(const Options& options) {
  const std::string bos = options.text("--bos");
  return bos == "on" ? PromptBos::on : bos == "off" ? PromptBos::off : PromptBos::automatic;
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

/// What is asked for, and how what comes of it is printed.
class Session {
 public:
  Session(const Options& options, const ModelFolder& folder, const ModelConfig& config)
      : json_(options.flag("--json")),
        echo_(options.flag("--echo")),
        model_path_(folder.path),
        special_(options.text("--special-in-text") == "plain" ? SpecialText::plain : SpecialText::parse),
        tokenizer_(load_model_tokenizer(folder.tokenizer_path, config.vocab_size, folder.path)),
        stops_(read_stops(options)) {
    GenerationRequest request{.max_tokens = options.integer("--max-tokens"),
                              .vocabulary = tokenizer_->vocab_size(),
                              .sampling = {.temperature = options.real("--temperature"),
                                           .top_k = options.integer("--top-k"),
                                           .top_p = options.real("--top-p")},
                              .seed = static_cast<uint64_t>(options.find_integer("--seed").value_or(0))};
    if (!options.flag("--ignore-eos")) request.stop_ids = stop_ids_of(folder);
    for (const Prompt& prompt : read_prompts(options)) {
      request.where = prompt.where;
      request.prompt = prompt_ids(prompt, bos_of(options));
      for (int64_t n = 0; n < options.integer("--num"); ++n) add(prompt.text, request);
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
    if (reason == FinishReason::non_finite) {
      throw Error(ErrorKind::numeric, "the model's logits are not finite: its weights are broken", model_path_);
    }
    Continuation& c = continuations_[request];
    std::string text;
    if (reason != FinishReason::stopped) c.stream.finish(text);
    c.reason = reason;
    take(request, text);
    for (; printing_ < continuations_.size() && continuations_[printing_].reason; ++printing_) end_of(printing_);
    if (printing_ < continuations_.size()) take(static_cast<int64_t>(printing_), "");
  }

 private:
  std::vector<int32_t> stop_ids_of(const ModelFolder& folder) const {
    std::vector<int32_t> ids = stop_ids(folder);
    if (ids.empty() && tokenizer_->eos_id()) ids = {*tokenizer_->eos_id()};
    return ids;
  }

  std::vector<int32_t> prompt_ids(const Prompt& prompt, PromptBos bos) const {
    try {
      int64_t lost_bytes = 0;
      std::vector<int32_t> ids = encode_prompt(*tokenizer_, prompt.text, bos, special_, &lost_bytes);
      if (lost_bytes > 0) {
        log::warn("{}: the tokenizer has no token for {} of {} bytes", prompt.where, lost_bytes, prompt.text.size());
      }
      return ids;
    } catch (const Error& error) {
      throw error.at(prompt.where);
    }
  }

  /// Each continuation draws from a stream of its own.
  void add(const std::string& prompt, GenerationRequest request) {
    request.stream = requests_.size();
    continuations_.push_back({.prompt = prompt,
                              .prompt_tokens = request.prompt.size(),
                              .stream = TextStream(tokenizer_->make_decoder(), stops_, request.prompt)});
    requests_.push_back(std::move(request));
  }

  /// More text of a continuation; that of the one whose turn it is goes out at once.
  void take(int64_t request, const std::string& text) {
    Continuation& c = continuations_[request];
    c.text += text;
    c.unprinted += text;
    if (json_ || static_cast<size_t>(request) != printing_) return;
    if (!std::exchange(started_, true)) write_stdout(echo_ ? c.prompt : "");
    write_stdout(c.unprinted);
    flush_stdout();
    c.unprinted.clear();
  }

  void end_of(size_t index) {
    Continuation& c = continuations_[index];
    if (json_) {
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

  bool json_, echo_;
  std::string model_path_;
  SpecialText special_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> stops_;
  std::vector<GenerationRequest> requests_;
  std::vector<Continuation> continuations_;
  size_t printing_ = 0;
  bool started_ = false;
};

/// What all continuations came to.
struct Totals {
  int64_t continuations = 0, prompt_tokens = 0, tokens = 0;
  std::map<std::string, int64_t> finish_reasons;
  double seconds = 0;

  Totals(const std::vector<Continuation>& all, double s) : continuations(std::ssize(all)), seconds(s) {
    for (const Continuation& c : all) {
      prompt_tokens += static_cast<int64_t>(c.prompt_tokens);
      tokens += static_cast<int64_t>(c.tokens.size());
      ++finish_reasons[to_string(*c.reason)];
    }
  }
};

void say_how_it_went(const Totals& totals, int64_t context) {
  const auto cut = totals.finish_reasons.find(to_string(FinishReason::context));
  if (cut != totals.finish_reasons.end()) {
    log::warn("{} of {} continuations ended where the model's context of {} tokens is full", cut->second,
              totals.continuations, context);
  }
  log::info("{} tokens after {} of prompt in {:.2f} s: {:.1f} tokens/s", totals.tokens, totals.prompt_tokens,
            totals.seconds, static_cast<double>(totals.tokens) / totals.seconds);
}

void write_report(Report& report, const std::string& path, const Options& options, const ModelFolder& folder,
                  const Totals& totals) {
  add_weight_inputs(report, folder);
  Json& config = report.config();
  for (const char* name : {"max-tokens", "top-k", "num", "batch-sequences"}) {
    config[name] = options.integer(std::string("--") + name);
  }
  for (const char* name : {"temperature", "top-p"}) set_number(config, name, options.real(std::string("--") + name));
  config["seed"] = options.find_integer("--seed").value_or(0);
  config["bos"] = options.text("--bos");
  config["stop"] = options.texts("--stop");
  config["ignore-eos"] = options.flag("--ignore-eos");
  config["weights"] = options.text("--weights");
  Json& results = report.results();
  results = {{"continuations", totals.continuations},
             {"prompt_tokens", totals.prompt_tokens},
             {"tokens", totals.tokens},
             {"finish_reasons", totals.finish_reasons}};
  set_number(results, "seconds", totals.seconds);
  set_number(results, "tokens_per_second", static_cast<double>(totals.tokens) / totals.seconds);
  report.write(path);
}

int run_keel_generate(const Options& options) {
  const DeviceChoice device = device_choice(options);
  const auto report_path = options.find_text("--report");
  if (report_path) {
    if (*report_path == "-") throw Error(ErrorKind::usage, "stdout is for the text", "--report");
    Report::require_writable(*report_path, options.flag("--force"),
                             {options.text("MODEL"), options.find_text("--prompts").value_or("")});
  }
  if (options.flag("--json") && options.flag("--echo")) {
    throw Error(ErrorKind::usage, "the lines of --json hold the prompt anyway", "--echo");
  }
  Report report("keel.generate/1", "keel-generate", options.arguments());
  const ModelFolder folder = open_model_folder(options.text("MODEL"));
  for (const std::string& warning : folder.warnings) log::warn("{}", warning);
  const ModelConfig config = parse_model_config(folder.config_text, folder.config_path);
  Session session(options, folder, config);
  constexpr int64_t kBatchTokens = 2048;
  const GeneratorSizes sizes = generator_sizes(session.requests(), config.max_position_embeddings,
                                               options.integer("--batch-sequences"), kBatchTokens);
  require_runnable(session.requests(), sizes, config.vocab_size);
  Context ctx(device, threads_of(options));
  InferenceModel model(
      ctx, folder, sizes.decoder_options(), [] { return stop_requested(); }, weights_of(options));
  // Text that comes in its time shows by itself how far it is.
  const std::unique_ptr<Progress> progress = make_progress(options);
  if (options.flag("--json")) progress->start("generate", std::ssize(session.requests()), "continuations");
  const Stopwatch stopwatch;
  int64_t done = 0;
  Generator(model, sizes)
      .run(session.requests(), {.on_token = [&](int64_t request, int32_t id) { return session.on_token(request, id); },
                                .on_finish =
                                    [&](int64_t request, FinishReason reason) {
                                      session.on_finish(request, reason);
                                      if (options.flag("--json")) progress->update(++done);
                                    }});
  progress->finish();
  const Totals totals(session.continuations(), stopwatch.seconds());
  say_how_it_went(totals, sizes.max_positions);
  if (report_path) write_report(report, *report_path, options, folder, totals);
  return kExitOk;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::generate_tool(), keel::run_keel_generate);
}
