/// keel-convert: exchanges model folders with the ecosystem. Options, calls into the library, exit code.
#include <fmt/format.h>

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
#include "keel/base/tool.h"
#include "keel/convert/convert.h"
#include "keel/convert/model_info.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

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
      {.name = "--info", .type = OptionType::flag, .help = "Print what SRC holds; write nothing."},
      {.name = "--json", .type = OptionType::flag, .help = "Print --info as JSON."},
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

ConvertOptions convert_options(const Options& options, const ModelFolder& source) {
  ConvertOptions convert;
  convert.format = options.text("--to") == "keel" ? ModelFormat::keel : ModelFormat::hugging_face;
  convert.max_shard_bytes = options.integer("--max-shard-size");
  const std::string dtype = options.find_text("--dtype").value_or("");
  if (dtype == "f32") convert.dtype = StoredType::F32;
  if (dtype == "f16") convert.dtype = StoredType::F16;
  if (dtype == "bf16") convert.dtype = StoredType::BF16;
  if (!source.tokenizer_path.empty()) {
    try {
      const auto tokenizer = load_tokenizer(source.tokenizer_path);
      convert.bos_id = tokenizer->bos_id();
      convert.eos_id = tokenizer->eos_id();
    } catch (const Error& error) {
      log::warn("the tokenizer is copied unread: {}", error.what());
    }
  }
  return convert;
}

Json results_of(const ConvertedModel& model, const Options& options, int64_t compared) {
  Json files = Json::array();
  for (const FileRecord& file : model.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.xxh3}});
  }
  return {{"to", options.text("--to")},
          {"model_type", model.model_type},
          {"parameters", model.parameters},
          {"tensors", model.tensors},
          {"verified_tensors", options.flag("--verify") ? Json(compared) : Json()},
          {"files", std::move(files)}};
}

int convert(const Options& options, const ModelFolder& source) {
  const std::string destination = options.text("DST");
  if (!options.has("--to")) throw Error(ErrorKind::usage, "--to must be given", "", "keel or hf");
  require_absent(destination, options.flag("--force"));
  const std::filesystem::path from = std::filesystem::weakly_canonical(source.path);
  if (from == std::filesystem::weakly_canonical(destination)) {
    throw Error(ErrorKind::usage, "source and destination are the same folder", destination);
  }
  Report report("keel.convert/1", "keel-convert", options.arguments());
  const ConvertOptions settings = convert_options(options, source);
  const std::unique_ptr<Progress> progress = make_progress(options);
  (void)remove_stale_temporaries(std::filesystem::absolute(destination).parent_path());
  AtomicDirectory folder(destination);
  bool started = false;
  const ConvertedModel model =
      convert_model(source, folder.temporary().string(), settings, [&](int64_t done, int64_t total) {
        if (!std::exchange(started, true)) progress->start("write", total, "bytes");
        progress->update(done);
      });
  progress->finish();
  int64_t compared = 0;
  if (options.flag("--verify")) {
    compared = verify_conversion(source, open_model_folder(folder.temporary().string()));
    log::info("{} tensors compared, all as they should be", compared);
  }
  for (const SafetensorsFile& file : source.tensors.files()) {
    report.add_input({.path = file.path(), .bytes = file.bytes()});
  }
  report.results() = results_of(model, options, compared);
  report.write(folder.temporary() / "report.json");
  folder.commit(options.flag("--force"));
  if (const auto file = options.find_text("--report")) report.write(*file);
  if (options.find_text("--report").value_or("") != "-") {
    write_stdout(fmt::format("{}: {}, {} parameters, {} tensors{}\n", destination, model.model_type,
                             format_count(static_cast<double>(model.parameters)), model.tensors,
                             options.flag("--verify") ? ", verified" : ""));
  }
  return kExitOk;
}

int run_keel_convert(const Options& options) {
  const ModelFolder source = open_model_folder(options.text("SRC"));
  for (const std::string& warning : source.warnings) log::warn("{}", warning);
  if (options.flag("--info")) {
    if (options.has("DST"))
      throw Error(ErrorKind::usage, "--info writes nothing, but DST is given", options.text("DST"));
    return print_info(options, source);
  }
  if (!options.has("DST")) throw Error(ErrorKind::usage, "DST must be given", "", "or --info to look at SRC");
  return convert(options, source);
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::convert_tool(), keel::run_keel_convert);
}
