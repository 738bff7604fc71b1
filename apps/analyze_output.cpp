#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "analyze_modes.h"
#include "keel/base/log.h"
#include "keel/base/output.h"

namespace keel {

std::vector<Option> output_options() {
  return {{.name = "--out",
           .type = OptionType::file,
           .value = "FILE",
           .help = "Where the report goes, with the table on stdout; - is stdout. By default stdout, where a terminal "
                   "gets the table instead."},
          {.name = "--json", .type = OptionType::flag, .help = "Print the report even on a terminal."}};
}

AnalysisOutput find_outputs(const Options& options, const std::vector<std::string>& kept) {
  AnalysisOutput output;
  const bool table_on_stdout = isatty(STDOUT_FILENO) == 1 && !options.flag("--json");
  if (options.is_given("--out") || !table_on_stdout) output.files.push_back(options.find_text("--out").value_or("-"));
  if (const auto file = options.find_text("--report")) output.files.push_back(*file);
  output.shows_table = std::find(output.files.begin(), output.files.end(), "-") == output.files.end();
  const auto is_done = [&](const std::string& file) {
    if (file == "-") return false;
    if (options.flag("--resume") && std::filesystem::is_regular_file(file)) {
      log::info("{} is finished; nothing to do", file);
      return true;
    }
    Report::require_writable(file, options.flag("--force"), {kept.begin(), kept.end()});
    return false;
  };
  const bool any = !output.files.empty();
  std::erase_if(output.files, is_done);
  output.is_finished = any && output.files.empty();
  return output;
}

void write_outputs(const AnalysisOutput& output, const Report& report, const std::string& table) {
  for (const std::string& file : output.files) report.write(file);
  if (output.shows_table) write_stdout(table);
}

}  // namespace keel
