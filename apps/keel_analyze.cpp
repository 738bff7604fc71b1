/// keel-analyze: looks inside models and runs.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "keel/analyze/wiring_table.h"
#include "keel/base/error.h"
#include "keel/base/options.h"
#include "keel/base/output.h"
#include "keel/base/report.h"
#include "keel/base/tool.h"
#include "keel/train/settings.h"

namespace keel {
namespace {

Tool analyze_tool() {
  Tool tool{.name = "keel-analyze", .summary = "Look inside models and runs."};
  Command wiring{.name = "wiring", .summary = "The table of every sublayer's norms and scales."};
  wiring.options = config_options(train_schema());
  std::vector<std::string> schemes;
  for (const ResidualScheme& scheme : residual_schemes()) schemes.emplace_back(scheme.name);
  wiring.options.push_back({.name = "--scheme",
                            .type = OptionType::choice,
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
  wiring.options.push_back({.name = "--out",
                            .type = OptionType::file,
                            .value = "FILE",
                            .initial = "-",
                            .help = "Where the report goes; - is stdout, where a terminal gets a table instead."});
  wiring.options.push_back(
      {.name = "--json", .type = OptionType::flag, .help = "Print the report even on a terminal."});
  wiring.examples = {{"keel-analyze wiring --scheme keel --blocks 4", "every row of an 8-sublayer Keel"},
                     {"keel-analyze wiring --config keel-64.json", "of a training config"}};
  tool.commands = {wiring};
  tool.examples = wiring.examples;
  return tool;
}

int run_wiring(const Options& options) {
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
  const std::string out = options.text("--out");
  const bool as_table = out != "-" || (isatty(STDOUT_FILENO) == 1 && !options.flag("--json"));
  if (out != "-" || !as_table) {
    Report report("keel.analyze.wiring/1", "keel-analyze", options.arguments());
    report.config() = config.to_json();
    report.results() = table.json;
    report.write(out);
  }
  if (as_table) write_stdout(table.text);
  return kExitOk;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::analyze_tool(), keel::run_wiring);
}
