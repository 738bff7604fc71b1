#pragma once

#include <string>
#include <vector>

#include "keel/base/options.h"
#include "keel/base/report.h"

namespace keel {

/// keel-analyze wiring: the table of every sublayer's norms and scales.
Command wiring_command();
int run_wiring(const Options& options);

/// keel-analyze gradients: how gradients and activations run through a model.
Command gradients_command();
int run_gradients(const Options& options);

/// --out and --json of a command whose result is a report.
std::vector<Option> output_options();

/// Where a command's report goes: --out, else stdout where no terminal gets the table; and --report.
struct AnalysisOutput {
  std::vector<std::string> files;
  bool shows_table = false;
  bool is_finished = false;  ///< --resume, and every file that is asked for is there
};
/// Error(usage) or Error(io) for what cannot be written; `kept` is what the command reads.
AnalysisOutput find_outputs(const Options& options, const std::vector<std::string>& kept);
void write_outputs(const AnalysisOutput& output, const Report& report, const std::string& table);

}  // namespace keel
