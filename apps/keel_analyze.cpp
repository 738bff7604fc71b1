/// keel-analyze: looks inside models and runs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "keel/analyze/wiring_table.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/log.h"
#include "keel/base/options.h"
#include "keel/base/output.h"
#include "keel/base/report.h"
#include "keel/base/tool.h"
#include "keel/train/settings.h"
#include "schemes.h"

namespace keel {
namespace {

Command wiring_command() {
  Command wiring{.name = "wiring", .summary = "The table of every sublayer's norms and scales."};
  wiring.options = config_options(train_schema());
  std::vector<std::string> schemes;
  for (const ResidualScheme& scheme : residual_schemes()) schemes.emplace_back(scheme.name);
  wiring.options.push_back({.name = "--scheme",
                            .type = OptionType::choice,
                            .value = "SCHEME",
                            .choices = schemes,
                            .config_key = "model.residual_scheme",
                            .help = "Residual scheme."});
  wiring.options.push_back({.name = "--blocks",
                            .type = OptionType::integer,
                            .value = "M",
                            .minimum = 1,
                            .maximum = 1e6,
                            .config_key = "model.num_hidden_layers",
                            .help = "Blocks of the model; sublayers are twice as many."});
  wiring.options.push_back({.name = "--alpha",
                            .type = OptionType::real,
                            .minimum = 0,
                            .above_minimum = true,
                            .config_key = "model.residual_alpha",
                            .help = "Skip scale in place of the scheme's own."});
  wiring.options.push_back(list_schemes_option());
  wiring.options.push_back({.name = "--out",
                            .type = OptionType::file,
                            .value = "FILE",
                            .help = "Where the report goes, with the table on stdout; - is stdout. By default stdout, "
                                    "where a terminal gets the table instead."});
  wiring.options.push_back(
      {.name = "--json", .type = OptionType::flag, .help = "Print the report even on a terminal."});
  wiring.examples = {{"keel-analyze wiring --scheme keel --blocks 4", "every row of an 8-sublayer Keel"},
                     {"keel-analyze wiring --config keel-64.json", "of a training config"}};
  return wiring;
}

Tool analyze_tool() {
  Tool tool{.name = "keel-analyze", .summary = "Look inside models and runs."};
  tool.commands = {wiring_command()};
  for (Option option : {force_option(), resume_option(), report_option(), seed_option("train.seed"), threads_option(),
                        progress_option()}) {
    option.brief = false;
    tool.options.push_back(std::move(option));
  }
  tool.examples = tool.commands[0].examples;
  tool.config = &train_schema();
  return tool;
}

/// False if the output is there already and --resume says to leave it.
bool must_write(const std::string& out, const Options& options) {
  if (options.flag("--resume") && std::filesystem::is_regular_file(out)) {
    log::info("{} is finished; nothing to do", out);
    return false;
  }
  Report::require_writable(out, options.flag("--force"), {options.find_text("--config").value_or("")});
  return true;
}

int run_wiring(const Options& options) {
  if (options.flag("--list-schemes")) return list_schemes(options.flag("--json"));
  Config config(train_schema());
  options.apply(config);
  if (options.flag("--print-config")) {
    write_stdout(config.print(options.flag("--origins")));
    return kExitOk;
  }
  const std::optional<bool> final_norm =
      config.has("model.final_norm") ? std::optional(config.boolean("model.final_norm")) : std::nullopt;
  const WiringTable table =
      wiring_table_of(config.text("model.residual_scheme"), config.integer("model.num_hidden_layers"),
                      config.find_real("model.residual_alpha"), final_norm);
  Report report("keel.analyze.wiring/1", "keel-analyze", options.arguments());
  report.config() = config.to_json();
  report.results() = table.json;
  if (const auto file = options.find_text("--config"); file && std::filesystem::is_regular_file(*file))
    report.add_input_file(*file);

  const bool shows_table = isatty(STDOUT_FILENO) == 1 && !options.flag("--json");
  std::vector<std::string> files;
  if (options.is_given("--out") || !shows_table) files.push_back(options.find_text("--out").value_or("-"));
  if (const auto file = options.find_text("--report")) files.push_back(*file);
  std::erase_if(files, [&](const std::string& file) { return file != "-" && !must_write(file, options); });
  for (const std::string& file : files) report.write(file);
  if (std::find(files.begin(), files.end(), "-") == files.end()) write_stdout(table.text);
  return kExitOk;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::analyze_tool(), keel::run_wiring);
}
