/// keel-train: trains a decoder from token shards. Options, calls into the library, exit code.
#include <nlohmann/json.hpp>

#include "device_option.h"
#include "doctor.h"
#include "keel/base/error.h"
#include "keel/base/options.h"
#include "keel/base/output.h"
#include "keel/base/tool.h"
#include "keel/base/utf8.h"
#include "keel/train/plan_devices.h"
#include "keel/train/settings.h"
#include "keel/train/train_command.h"
#include "schemes.h"
#include "text_codec.h"

namespace keel {
namespace {

Tool train_tool() {
  const ConfigSchema& schema = train_schema();
  Tool tool{.name = "keel-train", .summary = "Train a very deep decoder from token shards."};
  tool.options = config_options(schema);
  const auto key = [&](const char* config_key, const char* name) {
    tool.options.push_back(option_of_key(schema, config_key, name));
    return &tool.options.back();
  };
  key("data.path", "--data")->completions = {};
  tool.options.back().type = OptionType::directory;
  key("data.val_path", "--val-data")->type = OptionType::directory;
  key("data.format", "--data-format");
  tool.options.push_back(
      {.name = "--out", .type = OptionType::directory, .value = "RUN", .help = "Run directory to write."});
  tool.options.push_back(
      {.name = "--init",
       .type = OptionType::directory,
       .value = "DIR",
       .help = "Start from the weights, and nothing else, of this model folder, checkpoint or run's newest "
               "checkpoint."});
  key("train.steps", "--steps");
  tool.options.push_back(resume_option());
  tool.options.push_back({.name = "--override",
                          .value = "KEY=VALUE",
                          .completions = setting_completions(schema),
                          .repeatable = true,
                          .help = "With --resume: change a setting from here on; recorded in run.json."});
  tool.options.push_back(force_option());
  tool.options.push_back({.name = "--plan",
                          .type = OptionType::flag,
                          .help = "Print parameters, memory, FLOPs and an estimate of the time; train nothing."});
  tool.options.push_back({.name = "--plan-device",
                          .type = OptionType::choice,
                          .value = "NAME",
                          .initial = "cpu",
                          .choices = plan_device_names(),
                          .help = "With --plan: plan for such a GPU by its data sheet, or for this machine's cpu."});
  tool.options.push_back({.name = "--profile",
                          .type = OptionType::flag,
                          .help = "Train for a few steps, keep nothing, and print what each operation takes, beside "
                                  "what this machine could do."});
  tool.options.push_back({.name = "--profile-steps",
                          .type = OptionType::integer,
                          .value = "N",
                          .initial = "5",
                          .minimum = 1,
                          .maximum = 10000,
                          .help = "With --profile: time so many steps, after one to warm up.",
                          .brief = false});
  tool.options.push_back(
      {.name = "--doctor", .type = OptionType::flag, .help = "Print what this machine has and what would be slow."});
  tool.options.push_back(list_schemes_option());
  tool.options.push_back({.name = "--json", .type = OptionType::flag, .help = "Print listings as JSON."});
  tool.options.push_back(report_option());
  tool.options.push_back(seed_option("train.seed"));
  tool.options.push_back(threads_option());
  for (Option& option : device_options()) tool.options.push_back(std::move(option));
  tool.options.push_back(progress_option());
  tool.examples = {
      {"keel-train --config keel-64.json --data data/fwe --out runs/keel-64", "train"},
      {"keel-train --config keel-64.json --data data/fwe --out runs/keel-64 --resume", "go on after a stop"},
      {"keel-train --config keel-64.json --data data/fwe --plan", "what it will take"},
      {"keel-train --config keel-64.json --data data/fwe --plan --plan-device h200", "on a GPU that is not here"},
      {"keel-train --config keel-64.json --data data/fwe --profile", "where a step's time goes"},
      {"keel-train --config keel-64.json --set model.residual_scheme=pre --data data/fwe --out runs/pre-64",
       "the same with Pre-LN"},
  };
  tool.config = &schema;
  return tool;
}

TrainCommand command_of(const Options& options) {
  return {.configure = [&options](Config& config) { options.apply(config); },
          .out = options.find_text("--out").value_or(""),
          .init_path = options.find_text("--init").value_or(""),
          .resume = options.flag("--resume"),
          .force = options.flag("--force"),
          .overrides = options.texts("--override"),
          .config_path = options.find_text("--config").value_or(""),
          .report_path = options.find_text("--report").value_or(""),
          .arguments = options.arguments(),
          .open_codec = open_text_codec};
}

int print_plan(const Options& options, Context& ctx, const TrainCommand& command) {
  const TrainPlanReport found = plan(ctx, command, find_plan_device(options.text("--plan-device")));
  if (command.report_path != "-") {
    write_stdout(options.flag("--json") ? json_text(found.results, 2) + "\n" : found.text);
  }
  require_fit(found);
  return kExitOk;
}

int print_profile(const Options& options, Context& ctx, const TrainCommand& command) {
  const StepProfile found = profile(ctx, command, options.integer("--profile-steps"), *make_progress(options));
  if (command.report_path == "-") return kExitOk;
  write_stdout(options.flag("--json") ? json_text(step_profile_json(found), 2) + "\n" : step_profile_text(found));
  return kExitOk;
}

void require_one_mode(const Options& options) {
  for (const char* mode : {"--plan", "--profile"}) {
    const std::string detail = mode == std::string("--plan") ? "--plan-device" : "--profile-steps";
    if (options.is_given(detail) && !options.flag(mode)) throw Error(ErrorKind::usage, detail + " needs " + mode);
  }
  if (options.flag("--plan") && options.flag("--profile")) {
    throw Error(ErrorKind::usage, "--plan trains nothing and --profile does: give one of them");
  }
}

int run_keel_train(const Options& options) {
  if (options.flag("--doctor")) return doctor(device_choice(options), options.flag("--json"), threads_of(options));
  if (options.flag("--list-schemes")) return list_schemes(options.flag("--json"));
  for (const char* name : {"--data", "--val-data", "--out", "--init", "--set", "--override"}) {
    for (const std::string& value : options.texts(name)) require_utf8_path(name, value);
  }
  require_one_mode(options);
  const TrainCommand command = command_of(options);
  if (options.flag("--print-config")) {
    write_stdout(command_config(command).print(options.flag("--origins")));
    return kExitOk;
  }
  if (!options.flag("--plan") && !options.flag("--profile")) (void)options.text("--out");  // "must be given"
  // A GPU that is planned for need not be here.
  const bool is_planned_for = find_plan_device(options.text("--plan-device")) != nullptr;
  (void)device_of(options);
  Context ctx(is_planned_for ? DeviceChoice{} : device_choice(options), threads_of(options));
  if (options.flag("--plan")) return print_plan(options, ctx, command);
  if (options.flag("--profile")) return print_profile(options, ctx, command);
  const TrainResult result = train(ctx, command, *make_progress(options));
  if (command.report_path != "-" && !result.summary.empty()) write_stdout(result.summary + "\n");
  return result.exit_code;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::train_tool(), keel::run_keel_train);
}
