#include <filesystem>
#include <nlohmann/json.hpp>

#include "analyze_modes.h"
#include "device_option.h"
#include "keel/analyze/gradients.h"
#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/output.h"
#include "keel/base/tool.h"
#include "keel/base/utf8.h"
#include "keel/train/settings.h"

namespace keel {
namespace {

GradientQuestion question_of(const Options& options) {
  return {.configure = [&options](Config& config) { options.apply(config); },
          .model_path = options.find_text("CHECKPOINT").value_or(""),
          .step = options.find_integer("--step"),
          .sequences = options.find_integer("--sequences")};
}

/// What the command reads, by whatever name.
std::vector<std::string> inputs_of(const Options& options) {
  std::vector<std::string> inputs;
  for (const char* name : {"CHECKPOINT", "--config", "--data"}) {
    if (const auto path = options.find_text(name)) inputs.push_back(*path);
  }
  if (const auto data = options.find_text("--data")) {
    for (const char* suffix : {".bin", ".idx"}) inputs.push_back(*data + suffix);
  }
  return inputs;
}

}  // namespace

Command gradients_command() {
  Command command{.name = "gradients", .summary = "How gradients and activations run through a model, from one batch."};
  command.options.push_back({.name = "CHECKPOINT",
                             .type = OptionType::directory,
                             .help = "A run's newest checkpoint, a checkpoint or a model folder; without one the "
                                     "initial weights that --config describes."});
  for (Option& option : config_options(train_schema())) command.options.push_back(std::move(option));
  const auto key = [&](const char* config_key, const char* name) {
    command.options.push_back(option_of_key(train_schema(), config_key, name));
    return &command.options.back();
  };
  Option* data = key("data.path", "--data");
  data->type = OptionType::directory;
  data->completions = {};
  key("data.format", "--data-format");
  key("data.sequence_length", "--sequence-length");
  command.options.push_back({.name = "--step",
                             .type = OptionType::integer,
                             .value = "N",
                             .minimum = 0,
                             .maximum = 9e15,
                             .help = "Take the batch of this step of the run, from 0; by default a checkpoint's next "
                                     "one, else 0."});
  command.options.push_back({.name = "--sequences",
                             .type = OptionType::integer,
                             .value = "N",
                             .unit = "sequences",
                             .minimum = 1,
                             .maximum = 9e15,
                             .help = "Size of the batch; by default the config's."});
  for (Option& option : output_options()) command.options.push_back(std::move(option));
  for (Option& option : device_options()) command.options.push_back(std::move(option));
  command.examples = {
      {"keel-analyze gradients --config keel-64.json --data data/fwe", "at initialisation"},
      {"keel-analyze gradients runs/keel-64 --out gradients.json", "where a run stands, on its next batch"},
      {"keel-analyze gradients hf/llama --data data/fwe --sequence-length 512 --sequences 4", "of any model"}};
  return command;
}

int run_gradients(const Options& options) {
  for (const char* name : {"CHECKPOINT", "--data", "--set"}) {
    for (const std::string& value : options.texts(name)) require_utf8_path(name, value);
  }
  const GradientQuestion question = question_of(options);
  if (options.flag("--print-config")) {
    Config config(train_schema());
    options.apply(config);
    write_stdout(config.print(options.flag("--origins")));
    return kExitOk;
  }
  if (question.model_path.empty() && !options.has("--config") && !options.has("--set")) {
    throw Error(ErrorKind::usage, "CHECKPOINT or --config must be given", "", "'keel-analyze gradients -h' shows how");
  }
  const DeviceChoice device = device_choice(options);
  const AnalysisOutput output = find_outputs(options, inputs_of(options));
  if (output.is_finished) return kExitOk;
  Report report("keel.analyze.gradients/1", "keel-analyze", options.arguments());
  Context ctx(device, threads_of(options));
  const GradientSetup setup = prepare_gradients(ctx, question);
  for (const ReportInput& input : report_inputs(setup.run)) report.add_input(input);
  const std::string config_file = options.find_text("--config").value_or("");
  if (std::filesystem::is_regular_file(config_file)) report.add_input_file(config_file);
  const GradientAnalysis analysis = analyze_gradients(ctx, setup, *make_progress(options));
  report.config() = setup.config.to_json();
  report.results() = analysis.results;
  if (!analysis.is_finite) log::warn("loss or gradient is not finite");
  write_outputs(output, report, gradient_table(analysis.results));
  return analysis.is_finite ? kExitOk : kExitDiverged;
}

}  // namespace keel
