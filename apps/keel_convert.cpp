/// keel-convert: exchanges model folders with the ecosystem. Options, calls into the library, exit code.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "keel/base/atomic_file.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/log.h"
#include "keel/base/options.h"
#include "keel/base/output.h"
#include "keel/base/quantity.h"
#include "keel/base/report.h"
#include "keel/base/signals.h"
#include "keel/base/tool.h"
#include "keel/convert/convert.h"
#include "keel/convert/model_info.h"
#include "keel/eval/text_loss.h"
#include "keel/model/model_config_json.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

Tool convert_tool() {
  Tool tool{.name = "keel-convert", .summary = "Exchange models between Keel and Hugging Face folders."};
  tool.options = {
      {.name = "SRC",
       .type = OptionType::directory,
       .required = true,
       .help = "Model folder, checkpoint, or run (its newest complete checkpoint)."},
      {.name = "DST", .type = OptionType::directory, .help = "Folder to write."},
      {.name = "--to",
       .type = OptionType::choice,
       .choices = {"keel", "hf"},
       .help = "What to write: a Keel-family folder, or the Hugging Face family that the model is one of."},
      {.name = "--dtype",
       .type = OptionType::choice,
       .choices = {"f32", "f16", "bf16"},
       .help = "How weights are stored, rounded to nearest even; by default each tensor keeps its own."},
      {.name = "--max-shard-size",
       .type = OptionType::size,
       .initial = "5GB",
       .unit = "bytes",
       .minimum = 1,
       .help = "Above it the weights go to several files, each of whole tensors, with an index."},
      {.name = "--verify",
       .type = OptionType::flag,
       .help = "Read the result again and compare every tensor with the source."},
      {.name = "--text",
       .type = OptionType::file,
       .value = "FILE",
       .help = "With --verify: compare the loss on this text too; it must be equal unless --dtype rounds."},
      {.name = "--info", .type = OptionType::flag, .help = "Print what SRC holds; write nothing."},
      {.name = "--json", .type = OptionType::flag, .help = "Print --info as JSON."},
      threads_option(),
      force_option(),
      report_option(),
      progress_option(),
  };
  tool.examples = {
      {"keel-convert runs/pre-64 hf/pre-64 --to hf --verify", "a trained Pre-LN opens in transformers as Llama"},
      {"keel-convert TinyStories-656K stories --to keel", "start keel-train from a public model with --init stories"},
      {"keel-convert runs/keel-64 --info", "architecture, parameters, dtypes"},
  };
  return tool;
}

int print_info(const Options& options, const ModelFolder& source) {
  const Json info = model_info(source);
  if (const auto file = options.find_text("--report")) {
    Report report("keel.convert.info/1", "keel-convert", options.arguments());
    report.results() = info;
    report.write(*file);
    if (*file == "-") return kExitOk;
  }
  write_stdout(options.flag("--json") ? json_text(info, 2) + "\n" : model_info_text(info));
  return kExitOk;
}

/// Null if there is none, or none that can be read (a warning then: its files are copied all the same).
std::shared_ptr<const Tokenizer> tokenizer_of(const ModelFolder& source) {
  if (source.tokenizer_path.empty()) return nullptr;
  try {
    return load_tokenizer(source.tokenizer_path);
  } catch (const Error& error) {
    log::warn("the tokenizer is copied unread: {}", error.what());
    return nullptr;
  }
}

SpecialTokens special_tokens(const Tokenizer* tokenizer) {
  SpecialTokens special;
  if (tokenizer == nullptr) return special;
  const auto text = [&](std::optional<int32_t> id) { return id ? tokenizer->piece(*id) : std::string(); };
  special.bos_id = tokenizer->bos_id();
  special.eos_id = tokenizer->eos_id();
  special.bos = text(special.bos_id);
  special.eos = text(special.eos_id);
  special.unk = text(tokenizer->unk_id());
  special.adds_bos = tokenizer->adds_bos();
  special.adds_eos = tokenizer->adds_eos();
  return special;
}

ConvertOptions convert_options(const Options& options, const ModelFolder& source) {
  ConvertOptions convert;
  convert.format = options.text("--to") == "keel" ? ModelFormat::keel : ModelFormat::hugging_face;
  convert.max_shard_bytes = options.integer("--max-shard-size");
  const std::string dtype = options.find_text("--dtype").value_or("");
  if (dtype == "f32") convert.dtype = StoredType::F32;
  if (dtype == "f16") convert.dtype = StoredType::F16;
  if (dtype == "bf16") convert.dtype = StoredType::BF16;
  convert.special = special_tokens(tokenizer_of(source).get());
  return convert;
}

/// Misuse that the options alone show.
void check_options(const Options& options) {
  if (options.flag("--info")) {
    for (const char* name : {"DST", "--to", "--dtype", "--max-shard-size", "--verify", "--text"}) {
      if (options.is_given(name)) {
        throw Error(ErrorKind::usage, "--info writes nothing, but " + std::string(name) + " is given");
      }
    }
    if (options.is_given("--force") && !options.has("--report")) {
      throw Error(ErrorKind::usage, "--info writes nothing that --force could replace", "", "give --report FILE too");
    }
    return;
  }
  if (options.flag("--json")) throw Error(ErrorKind::usage, "--json goes with --info");
  if (!options.has("DST")) throw Error(ErrorKind::usage, "DST must be given", "", "or --info to look at SRC");
  if (!options.has("--to")) throw Error(ErrorKind::usage, "--to must be given", "", "keel or hf");
  if (options.has("--text") && !options.flag("--verify")) {
    throw Error(ErrorKind::usage, "--text compares losses, which is part of --verify", "", "give both");
  }
}

/// True if `path` is `folder` or lies in it, by whatever name.
bool is_or_lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path inner = fs::weakly_canonical(path), outer = fs::weakly_canonical(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

/// The source stays as it is: no output in it, and none that --force would replace it with.
void check_destination(const Options& options, const ModelFolder& source) {
  const std::string destination = options.text("DST");
  const bool force = options.flag("--force");
  if (is_or_lies_in(destination, source.path)) {
    const bool same = is_or_lies_in(source.path, destination);
    throw Error(ErrorKind::usage, same ? "source and destination are the same folder" : "DST lies in SRC", destination);
  }
  for (const std::string& path : {source.path, options.text("SRC"), options.find_text("--text").value_or("")}) {
    if (!path.empty() && is_or_lies_in(path, destination)) {
      throw Error(ErrorKind::usage, "DST holds what this command reads", destination, "it would replace " + path);
    }
  }
  require_absent(destination, force);
}

/// What the report may not touch.
void check_report(const Options& options, const ModelFolder& source) {
  const auto path = options.find_text("--report");
  if (!path) return;
  Report::require_writable(
      *path, options.flag("--force"),
      {source.path, options.find_text("DST").value_or(""), options.find_text("--text").value_or("")});
}

/// {"path", "tokens", "source", "result"}: nats a token. Error(format) where every stored value is the source's and
/// the loss is not.
Json compare_losses(const Options& options, const ModelFolder& source, const ModelFolder& result) {
  const std::string path = options.text("--text");
  const std::string text = read_file(path);
  const ModelConfig config = parse_model_config(source.config_text, source.config_path);
  const auto tokenizer = load_model_tokenizer(source.tokenizer_path, config.vocab_size, source.path);
  Context ctx(threads_of(options));
  const auto loss = [&](const ModelFolder& folder) {
    return text_loss(ctx, folder, *tokenizer, text, path, [] { return stop_requested(); });
  };
  const TextLoss before = loss(source), after = loss(result);
  const bool is_equal = before.nats_per_token == after.nats_per_token ||
                        (std::isnan(before.nats_per_token) && std::isnan(after.nats_per_token));
  if (!is_equal && keeps_values(source, result)) {
    throw Error(ErrorKind::format,
                fmt::format("the result's loss is {}, the source's {}", after.nats_per_token, before.nats_per_token),
                options.text("DST"));
  }
  Json losses{{"path", path}, {"tokens", before.tokens}};
  set_number(losses, "source", before.nats_per_token);
  set_number(losses, "result", after.nats_per_token);
  return losses;
}

Json results_of(const ConvertedModel& model, const Options& options, int64_t compared, const Json& losses) {
  Json files = Json::array();
  for (const FileRecord& file : model.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.xxh3}});
  }
  return {{"to", options.text("--to")},
          {"model_type", model.model_type},
          {"parameters", model.parameters},
          {"tensors", model.tensors},
          {"verified_tensors", options.flag("--verify") ? Json(compared) : Json()},
          {"text", losses},
          {"files", std::move(files)}};
}

std::string summary(const Options& options, const ConvertedModel& model, const Json& losses) {
  std::string text = fmt::format("{}: {}, {} parameters, {} tensors{}\n", options.text("DST"), model.model_type,
                                 format_count(static_cast<double>(model.parameters)), model.tensors,
                                 options.flag("--verify") ? ", verified" : "");
  if (!losses.is_null()) {
    const auto loss = [&](const char* key) {
      return losses[key].is_null() ? std::string("not finite") : fmt::format("{:.9f}", losses[key].get<double>());
    };
    text +=
        fmt::format("loss on {}: source {}, result {} nats a token ({} tokens)\n", losses["path"].get<std::string>(),
                    loss("source"), loss("result"), losses["tokens"].get<int64_t>());
  }
  return text;
}

int convert(const Options& options, const ModelFolder& source) {
  const std::string destination = options.text("DST");
  Report report("keel.convert/1", "keel-convert", options.arguments());
  const ConvertOptions settings = convert_options(options, source);
  const std::unique_ptr<Progress> progress = make_progress(options);
  AtomicDirectory folder(destination);
  (void)remove_stale_temporaries(folder.temporary().parent_path());
  bool started = false;
  const ConvertedModel model =
      convert_model(source, folder.temporary().string(), settings, [&](int64_t done, int64_t total) {
        if (!std::exchange(started, true)) progress->start("write", total, "bytes");
        progress->update(done);
      });
  progress->finish();
  int64_t compared = 0;
  Json losses;
  if (options.flag("--verify")) {
    const ModelFolder result = open_model_folder(folder.temporary().string());
    compared = verify_conversion(source, result);
    if (options.has("--text")) losses = compare_losses(options, source, result);
  }
  add_weight_inputs(report, source);
  if (options.has("--text")) report.add_input_file(options.text("--text"));
  report.results() = results_of(model, options, compared, losses);
  report.write(folder.temporary() / "report.json");
  folder.commit(options.flag("--force"));
  if (const auto file = options.find_text("--report")) report.write(*file);
  if (options.find_text("--report").value_or("") != "-") write_stdout(summary(options, model, losses));
  return kExitOk;
}

int run_keel_convert(const Options& options) {
  check_options(options);
  const ModelFolder source = open_model_folder(options.text("SRC"));
  check_report(options, source);
  for (const std::string& warning : source.warnings) log::warn("{}", warning);
  if (options.flag("--info")) return print_info(options, source);
  check_destination(options, source);
  return convert(options, source);
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::convert_tool(), keel::run_keel_convert);
}
