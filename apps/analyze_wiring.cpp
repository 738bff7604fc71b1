#include <filesystem>
#include <nlohmann/json.hpp>

#include "analyze_modes.h"
#include "keel/analyze/wiring_table.h"
#include "keel/base/output.h"
#include "keel/train/settings.h"
#include "schemes.h"

namespace keel {

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
  for (Option& option : output_options()) wiring.options.push_back(std::move(option));
  wiring.examples = {{"keel-analyze wiring --scheme keel --blocks 4", "every row of an 8-sublayer Keel"},
                     {"keel-analyze wiring --config keel-64.json", "of a training config"}};
  return wiring;
}

int run_wiring(const Options& options) {
  if (options.flag("--list-schemes")) return list_schemes(options.flag("--json"));
  Config config(train_schema());
  options.apply(config);
  if (options.flag("--print-config")) {
    write_stdout(config.print(options.flag("--origins")));
    return kExitOk;
  }
  (void)config.integer("model.num_hidden_layers");  // "must be given"
  const WiringTable table = wiring_table_of(given_model(config));
  Report report("keel.analyze.wiring/1", "keel-analyze", options.arguments());
  report.config() = config.to_json();
  report.results() = table.json;
  const std::string config_file = options.find_text("--config").value_or("");
  if (std::filesystem::is_regular_file(config_file)) report.add_input_file(config_file);
  write_outputs(find_outputs(options, {config_file}), report, table.text);
  return kExitOk;
}

}  // namespace keel
