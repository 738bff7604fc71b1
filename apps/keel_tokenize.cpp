/// keel-tokenize: text files to token shards, and back. Options, calls into the library, exit code.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "keel/base/atomic_file.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/base/log.h"
#include "keel/base/options.h"
#include "keel/base/output.h"
#include "keel/base/quantity.h"
#include "keel/base/report.h"
#include "keel/base/tool.h"
#include "keel/base/utf8.h"
#include "keel/tokenizer/counted.h"
#include "keel/tokenizer/dataset_folder.h"
#include "keel/tokenizer/encode_report.h"
#include "keel/tokenizer/encode_settings.h"
#include "keel/tokenizer/text_commands.h"
#include "keel/tokenizer/token_dataset.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr const char* kToolName = "keel-tokenize";

Option tokenizer_option(bool required) {
  return {.name = "--tokenizer",
          .type = OptionType::file,
          .value = "FILE|DIR",
          .required = required,
          .help = "Tokenizer: a tokenizer.json, a sentencepiece .model file, or the folder it lies in."};
}

Option special_option() {
  Option option = option_of_key(encode_schema(), "special_in_text", "--special-in-text");
  option.config_key.clear();
  option.initial = "plain";
  option.group.clear();
  return option;
}

Option json_option(const char* help) {
  return {.name = "--json", .type = OptionType::flag, .help = help};
}

/// A default as it would be typed; "" for none, and for flags that are off.
std::string default_text(const ConfigKey& key) {
  if (key.initial.empty() || key.type == ConfigType::boolean) return {};
  const Json value = Json::parse(key.initial);
  return value.is_string() ? value.get<std::string>() : key.initial;
}

Command encode_command() {
  const ConfigSchema& schema = encode_schema();
  Command command{.name = "encode", .summary = "Encode text files into token shards."};
  command.options = {{.name = "INPUT",
                      .type = OptionType::file,
                      .required = true,
                      .repeatable = true,
                      .help = "Files (plain, .gz, .zst), folders, quoted patterns, or - for jsonl on stdin."},
                     tokenizer_option(true),
                     {.name = "--out",
                      .type = OptionType::directory,
                      .value = "DIR",
                      .required = true,
                      .help = "Folder to write: shards, tokenizer, manifest.json, report.json."}};
  const std::set<std::string> brief{"documents",    "text_field",   "on_error", "append_eod",
                                    "val_fraction", "shard_tokens", "workers"};
  const std::map<std::string, std::string> values{
      {"documents", "file|line|MARK"}, {"part", "I/N"}, {"max_errors", "N|P%"}};
  const auto add = [&](const char* group, std::initializer_list<std::string> keys) {
    for (const std::string& key : keys) {
      std::string name = "--" + key;
      std::replace(name.begin(), name.end(), '_', '-');
      Option option = option_of_key(schema, key, name);
      option.group = group;
      option.brief = brief.contains(key);
      option.initial = default_text(schema.at(key));
      if (values.contains(key)) option.value = values.at(key);
      command.options.push_back(std::move(option));
    }
  };
  add("Documents", {"format", "documents", "text_field", "id_field", "text_is_list"});
  command.options.push_back({.name = "--where",
                             .value = "CONDITION",
                             .repeatable = true,
                             .group = "Documents",
                             .help = schema.at("where").help,
                             .brief = false});
  add("Documents", {"max_document_bytes", "invalid_utf8", "on_error", "max_errors", "keep_empty", "part"});
  add("Tokens",
      {"append_eod", "prepend_bos", "special_in_text", "split_long", "dtype", "shard_tokens", "val_fraction"});
  for (Option& option : config_options(schema)) {
    option.brief = false;
    command.options.push_back(std::move(option));
  }
  add("Run", {"workers"});
  Option resume = resume_option();
  resume.help = "Do nothing if this command's data set is complete; one that is not is made from the beginning.";
  Option seed = seed_option({});
  seed.help = "Accepted as by every tool; nothing here is random.";
  for (Option option : {threads_option(), force_option(), resume, seed, report_option(), progress_option()}) {
    option.brief = option.brief && option.name != "--resume";
    command.options.push_back(std::move(option));
  }
  command.examples = {
      {"keel-tokenize encode c4/*.jsonl.gz --tokenizer llama.model --out data/c4", "jsonl, gzip or zstd, by content"},
      {"keel-tokenize encode books/ --tokenizer llama.model --out data/books --val-fraction 0.01", "a folder of texts"},
      {"zcat c4.jsonl.gz | keel-tokenize encode - --tokenizer llama.model --out data/c4 --on-error skip",
       "from a pipe, counting bad records instead of stopping"}};
  return command;
}

Command ids_command() {
  Command command{.name = "ids", .summary = "Print the ids of a text, or of each line of stdin."};
  command.options = {
      {.name = "TEXT", .help = "The text; - or nothing reads stdin."},
      tokenizer_option(true),
      {.name = "--add-special",
       .type = OptionType::flag,
       .help = "Add the BOS and EOS that the tokenizer's files ask for; of a sentencepiece model its BOS."},
      {.name = "--whole", .type = OptionType::flag, .help = "Take all of stdin as one text."},
      {.name = "--pieces", .type = OptionType::flag, .help = "Print pieces instead of ids."},
      special_option()};
  command.examples = {{"keel-tokenize ids --tokenizer llama.model 'Hello world'"},
                      {"keel-tokenize ids --tokenizer llama.model --pieces - < lines.txt"}};
  return command;
}

Command decode_command() {
  Command command{.name = "decode", .summary = "Print the text of documents from their tokens."};
  command.options = {{.name = "SHARD|DIR",
                      .type = OptionType::file,
                      .required = true,
                      .help = "Data set folder, or a shard's prefix or file."},
                     {.name = "--doc",
                      .value = "N[:M]",
                      .help = "Document N, or N up to but not including M; counted from 0 over all shards."},
                     {.name = "--separator",
                      .value = "TEXT",
                      .help = "Print this after each document, \\n \\t \\r \\0 \\\\ read as in C; without it a newline "
                              "after each of several, and nothing after a single one."},
                     tokenizer_option(false),
                     json_option("One JSON object a document: {\"document\", \"text\"}.")};
  command.examples = {{"keel-tokenize decode data/c4 --doc 0:3"},
                      {"keel-tokenize decode data/c4 --separator '\\0'", "ended by NUL, for texts of several lines"},
                      {"keel-tokenize decode data/c4/train-00000 --doc 17 --tokenizer llama.model"}};
  return command;
}

Command info_command() {
  Command command{.name = "info", .summary = "Print what a data set holds."};
  command.options = {
      {.name = "SHARD|DIR",
       .type = OptionType::file,
       .required = true,
       .help = "Data set folder, or a shard's prefix or file."},
      {.name = "--verify", .type = OptionType::flag, .help = "Read everything and check hashes and ids."},
      {.name = "--out",
       .type = OptionType::file,
       .value = "FILE",
       .initial = "-",
       .help = "Where the report goes; - is stdout, where a terminal gets a table instead."},
      json_option("Print the report even on a terminal."),
      force_option(),
      progress_option()};
  command.examples = {{"keel-tokenize info data/c4"}, {"keel-tokenize info data/c4 --verify"}};
  return command;
}

Tool tokenize_tool() {
  Tool tool{.name = kToolName, .summary = "Turn text files into token shards, and look at them."};
  tool.commands = {encode_command(), ids_command(), decode_command(), info_command()};
  tool.examples = {tool.commands[0].examples[0], tool.commands[1].examples[0], tool.commands[3].examples[1]};
  tool.config = &encode_schema();
  return tool;
}

Config encode_config(const Options& options) {
  Config config(encode_schema());
  options.apply(config);
  if (options.is_given("--where")) {
    config.apply_value("where", Json(options.texts("--where")), {.layer = ConfigLayer::flag, .name = "--where"});
  }
  return config;
}

void warn_about_inputs(const InputFiles& inputs) {
  if (!inputs.left_out.empty()) {
    const auto count = static_cast<int64_t>(inputs.left_out.size());
    log::warn("{} left out, as only names in .txt .jsonl .json (.gz .zst) are taken from folders, such as {}",
              counted(count, "file"), inputs.left_out.front());
  }
  constexpr size_t kMost = 10;
  for (size_t i = 0; i < std::min(kMost, inputs.skipped.size()); ++i) log::warn("passed over: {}", inputs.skipped[i]);
  if (inputs.skipped.size() > kMost) log::warn("passed over: {} more", inputs.skipped.size() - kMost);
}

void warn_about_foreign(const std::string& out, const std::vector<std::string>& foreign) {
  if (foreign.empty()) return;
  const bool has_mask =
      std::any_of(foreign.begin(), foreign.end(), [](const std::string& name) { return name.ends_with(".mask"); });
  log::warn("{} keeps {} that keel-tokenize did not write, such as {}{}", out,
            counted(static_cast<int64_t>(foreign.size()), "other file"), foreign.front(),
            has_mask ? "; loss masks there were made for the shards that are replaced now" : "");
}

Json settings_of(const Options& options, const Config& config) {
  Json settings = config.to_json();
  settings["tokenizer"] = options.text("--tokenizer");
  settings["out"] = options.text("--out");
  return settings;
}

/// Whether a report is of an encode of this tokenizer, these settings and inputs. Throws Json::exception for a report
/// of another form.
bool is_report_of(const Json& report, const Tokenizer& tokenizer, Json settings, const InputFiles& inputs) {
  Json earlier = report.at("config");
  settings.erase("workers");  // the bytes do not depend on them
  earlier.erase("workers");
  if (earlier != settings) return false;
  std::map<std::string, int64_t> bytes;
  for (const InputFile& file : inputs.files) bytes[file.path] = file.bytes;
  const Json& read = report.at("inputs");
  return read.at(0).at("sha256") == tokenizer.sha256() &&
         std::all_of(read.begin() + 1, read.end(), [&](const Json& input) {
           const auto found = bytes.find(input.at("path").get<std::string>());
           return found != bytes.end() && found->second == input.at("bytes");
         });
}

/// For --resume: true if a data set of this command is there. Error(usage) if it is another's.
bool is_complete(const fs::path& out, const Tokenizer& tokenizer, const Json& settings, const InputFiles& inputs) {
  const fs::path path = out / kReportName;
  std::error_code code;
  if (!fs::exists(path, code)) return false;
  try {
    const Json report = parse_json(read_file(path), path.string(), ErrorKind::format);
    if (is_report_of(report, tokenizer, settings, inputs)) return true;
  } catch (const Json::exception&) {
  }
  throw Error(ErrorKind::usage, "the data set there was made from other inputs or settings", out.string(),
              "--force replaces it");
}

Report encode_report(const Options& options, const Config& config, const EncodeResult& result,
                     const Tokenizer& tokenizer, Report report) {
  report.config() = settings_of(options, config);
  for (const fs::path& file : tokenizer.files())
    report.add_input({file.string(), size_of_file(file), sha256_of_file(file), {}});
  for (const SourceInfo& source : result.sources) {
    if (source.read) report.add_input({source.file.path, source.file.bytes, {}, source.xxh3});
  }
  report.results() = encode_results(result);
  return report;
}

int run_encode(const Options& options) {
  Report report("keel.tokenize.encode/1", kToolName, options.arguments());
  const Config config = encode_config(options);
  if (options.flag("--print-config")) {
    write_stdout(config.print(options.flag("--origins")));
    return kExitOk;
  }
  const std::string out = options.text("--out");
  require_utf8_path("--out", out);
  require_utf8_path("--tokenizer", options.text("--tokenizer"));
  const bool force = options.flag("--force");
  const bool resume = options.flag("--resume") && !force;
  if (!resume) require_replaceable(out, force);
  const std::optional<std::string> report_file = options.find_text("--report");
  const EncodeOptions settings = resolve_encode_options(config, threads_of(options));
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(options.text("--tokenizer"));
  const InputFiles inputs = find_input_files(options.texts("INPUT"));
  for (const InputFile& file : inputs.files) require_utf8_path("INPUT", file.path);
  warn_about_inputs(inputs);
  if (resume && is_complete(out, *tokenizer, settings_of(options, config), inputs)) {
    log::info("{} is finished; nothing to do", out);
    return kExitOk;
  }
  if (resume) require_replaceable(out, force);
  if (report_file) {
    std::vector<fs::path> kept{out, tokenizer->path(), options.find_text("--config").value_or("")};
    for (const InputFile& file : inputs.files) kept.emplace_back(file.path == "-" ? "" : file.path);
    Report::require_writable(*report_file, force, kept);
  }

  AtomicDirectory folder(out);
  for (const std::string& name : remove_stale_temporaries(folder.temporary().parent_path())) {
    log::info("removed {} of a run that was killed", name);
  }
  const EncodeResult result =
      encode_files(inputs.files, *tokenizer, settings, folder.temporary(), *make_progress(options));
  const std::string tokenizer_name = copy_tokenizer(*tokenizer, folder.temporary());
  write_file_atomically(
      folder.temporary() / kManifestName,
      data_manifest_text(manifest_of(result, *tokenizer, tokenizer_name), manifest_details(result, settings)) + "\n");
  for (const std::string& line : source_lines(result)) log::info("{}", line);
  const auto is_validation = [](const DataManifest::Shard& shard) { return shard.name.starts_with("val-"); };
  if (settings.validation_fraction > 0 && std::none_of(result.shards.begin(), result.shards.end(), is_validation)) {
    log::warn(
        "no document fell into the validation split ({} in all): --documents line or a marker makes more of a text",
        result.documents);
  }
  if (force) warn_about_foreign(out, foreign_entries(folder.path()));
  report = encode_report(options, config, result, *tokenizer, std::move(report));
  report.write(folder.temporary() / kReportName);
  publish_dataset(folder, force);
  if (report_file) report.write(*report_file);
  if (report_file != "-" && !options.flag("--quiet")) write_stdout(encode_summary(result, out));
  return kExitOk;
}

int run_ids(const Options& options) {
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(options.text("--tokenizer"));
  IdsOptions ids;
  ids.add_special = options.flag("--add-special");
  ids.whole = options.flag("--whole");
  ids.pieces = options.flag("--pieces");
  ids.special = options.text("--special-in-text") == "parse" ? SpecialText::parse : SpecialText::plain;
  const std::string text = options.find_text("TEXT").value_or("-");
  if (text == "-") {
    print_ids_of_input(*tokenizer, ids, "-", write_stdout);
  } else {
    write_stdout(ids_line(*tokenizer, ids, text) + "\n");
  }
  return kExitOk;
}

DecodeOptions decode_options(const Options& options) {
  DecodeOptions decode{.json = options.flag("--json")};
  if (!options.is_given("--separator")) return decode;
  if (decode.json) throw Error(ErrorKind::usage, "--separator and --json do not go together", {}, "leave one out");
  decode.separator = parse_separator(options.text("--separator"));
  return decode;
}

int run_decode(const Options& options) {
  const DecodeOptions decode = decode_options(options);
  const TokenDataset data(options.text("SHARD|DIR"));
  const DocumentRange range = parse_document_range(options.find_text("--doc"), data.documents());
  std::optional<std::string> file = options.find_text("--tokenizer");
  if (!file && data.tokenizer_file()) file = data.tokenizer_file()->string();
  if (!file) throw Error(ErrorKind::usage, "no tokenizer beside the data", data.path().string(), "give --tokenizer");
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(*file);
  if (data.manifest() && data.manifest()->tokenizer && data.manifest()->tokenizer->sha256 != tokenizer->sha256()) {
    log::warn("{} is not the tokenizer that the data was made with", tokenizer->path().string());
  }
  print_documents(data, *tokenizer, range, decode, write_stdout);
  return kExitOk;
}

int run_info(const Options& options) {
  Report report("keel.tokenize.info/1", kToolName, options.arguments());
  const std::string out = options.text("--out");
  const std::string source = options.text("SHARD|DIR");
  Report::require_writable(out, options.flag("--force"), {source, source + ".bin", source + ".idx"});
  const TokenDataset data(source);
  for (const std::string& name : data.unlisted_files()) log::warn("{} is not in the manifest of its folder", name);
  std::optional<std::vector<TokenDataset::ShardCheck>> checks;
  if (options.flag("--verify")) checks = data.verify(*make_progress(options));
  report.config() = {{"path", source}, {"verify", options.flag("--verify")}};
  report.results() = data.info_results(checks);
  if (data.manifest()) report.add_input_file(data.path() / kManifestName);
  const bool table = out != "-" || (isatty(STDOUT_FILENO) == 1 && !options.flag("--json"));
  if (!(table && out == "-")) report.write(out);
  if (table) write_stdout(info_table(data, checks.has_value()));
  return kExitOk;
}

int run(const Options& options) {
  if (options.command() == "encode") return run_encode(options);
  if (options.command() == "ids") return run_ids(options);
  if (options.command() == "decode") return run_decode(options);
  return run_info(options);
}

/// Commands that later versions have: refused by name, whatever follows them.
int refuse_later_command(char** argv) {
  const std::string command = argv[1];
  const Tool tool{.name = kToolName, .summary = {}, .command_required = false};
  return run_tool(1, argv, tool, [&](const Options&) -> int {
    throw Error(ErrorKind::usage, "'" + command + "' is not part of this version", {},
                "encode, ids, decode and info are");
  });
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  if (argc > 1 && (std::string_view(argv[1]) == "merge" || std::string_view(argv[1]) == "train")) {
    return keel::refuse_later_command(argv);
  }
  return keel::run_tool(argc, argv, keel::tokenize_tool(), keel::run);
}
