/// keel-analyze: looks inside models and runs. Its commands are in analyze_*.cpp.
#include "analyze_modes.h"
#include "keel/base/tool.h"
#include "keel/train/settings.h"

namespace keel {
namespace {

Tool analyze_tool() {
  Tool tool{.name = "keel-analyze", .summary = "Look inside models and runs."};
  tool.commands = {wiring_command(), gradients_command()};
  for (Option option : {force_option(), resume_option(), report_option(), seed_option("train.seed"), threads_option(),
                        progress_option()}) {
    option.brief = false;
    tool.options.push_back(std::move(option));
  }
  for (const Command& command : tool.commands) tool.examples.push_back(command.examples.front());
  tool.config = &train_schema();
  return tool;
}

int run_keel_analyze(const Options& options) {
  return options.command() == "wiring" ? run_wiring(options) : run_gradients(options);
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::analyze_tool(), keel::run_keel_analyze);
}
