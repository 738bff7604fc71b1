/// keel-train: trains a decoder from token shards. Options, calls into the library, exit code.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "doctor.h"
#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/options.h"
#include "keel/base/output.h"
#include "keel/base/quantity.h"
#include "keel/base/report.h"
#include "keel/base/signals.h"
#include "keel/base/tool.h"
#include "keel/model/model_config_json.h"
#include "keel/train/plan_report.h"
#include "keel/train/resume.h"
#include "keel/train/run_directory.h"
#include "keel/train/run_setup.h"
#include "keel/train/throughput.h"
#include "keel/train/training_run.h"
#include "schemes.h"

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
  tool.options.push_back({.name = "--init",
                          .type = OptionType::directory,
                          .value = "DIR",
                          .help = "Start from this model folder, checkpoint or run's newest checkpoint."});
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
      {"keel-train --config keel-64.json --set model.residual_scheme=pre --data data/fwe --out runs/pre-64",
       "the same with Pre-LN"},
  };
  tool.config = &schema;
  return tool;
}

bool is_run_directory(const std::string& path) {
  return std::filesystem::exists(path + "/run.json");
}

void require_no_run(const std::string& out) {
  if (!is_run_directory(out)) return;
  throw Error(ErrorKind::usage, "the run directory exists already", out,
              "--resume continues it, --force starts afresh");
}

/// What the command line and, when resuming, the run directory make of a run.
struct Command {
  Config config{train_schema()};
  std::string init_path;
  bool resumes = false;                     ///< an existing run directory goes on
  std::optional<Config> before, commanded;  ///< see ResumedConfig
  Json earlier;                             ///< its run.json
  std::vector<AppliedOverride> overrides;
};

Command read_command(const Options& options) {
  Command command;
  command.init_path = options.find_text("--init").value_or("");
  const std::vector<std::string> overrides = options.texts("--override");
  const auto out = options.find_text("--out");
  if (!overrides.empty() && !options.flag("--resume")) throw Error(ErrorKind::usage, "--override needs --resume");
  if (!options.flag("--resume") || !out || !is_run_directory(*out)) {
    options.apply(command.config);
    for (const std::string& assignment : overrides) command.config.apply_set(assignment);
    return command;
  }
  const JsonDocument document = RunDirectory::read_run_json(*out);
  ResumedConfig resumed = resume_config(
      document, [&](Config& config) { options.apply(config); }, overrides);
  command.config = std::move(resumed.config);
  command.before = std::move(resumed.before);
  command.commanded = std::move(resumed.commanded);
  command.overrides = std::move(resumed.overrides);
  command.resumes = true;
  command.earlier = document.root();
  const Json init = command.earlier.value("init", Json());
  const std::string earlier_init = init.is_string() ? init.get<std::string>() : "";
  if (!command.init_path.empty() && command.init_path != earlier_init) {
    throw Error(ErrorKind::config, "the run started from '" + earlier_init + "', not '" + command.init_path + "'",
                "--init", "leave it out");
  }
  command.init_path = earlier_init;
  return command;
}

int print_plan(const Options& options, Context& ctx, const RunSetup& setup) {
  Report report("keel.train.plan/1", "keel-train", options.arguments());
  const TrainPlanReport plan = plan_report(ctx, setup.settings, true);
  report.config() = setup.config.to_json();
  report.results() = plan.results;
  const auto file = options.find_text("--report");
  if (file) report.write(*file);
  if (!file || *file != "-") write_stdout(options.flag("--json") ? json_text(plan.results, 2) + "\n" : plan.text);
  require_fit(plan);
  return kExitOk;
}

void require_room_for_checkpoint(const std::string& out, const TrainSettings& settings) {
  constexpr int64_t kArrays = 3, kHeaders = int64_t{1} << 20;  // weights and AdamW's two averages
  require_free_space(out, kArrays * count_parameters(settings.model).total * int64_t{sizeof(float)} + kHeaders);
}

Json overrides_json(const Command& command, int64_t step) {
  Json list = command.earlier.is_object() ? command.earlier.value("overrides", Json::array()) : Json::array();
  for (const AppliedOverride& o : command.overrides) {
    list.push_back({{"from_step", step}, {"key", o.key}, {"before", o.before}, {"after", o.after}});
  }
  return list;
}

/// The checkpoint to go on from, having said so; nothing when the run starts at step 0.
std::optional<Checkpoint> find_resume_point(const std::string& out) {
  NewestCheckpoint newest = newest_checkpoint(out);
  for (const CheckpointEntry& entry : newest.skipped)
    log::warn("skipped a damaged checkpoint: {} ({})", entry.path, entry.damage);
  return std::move(newest.checkpoint);
}

/// The checkpoint and the command must belong to one run.
void require_same_run(const Command& command, const RunSetup& setup, const Checkpoint& checkpoint) {
  if (checkpoint.trainer.contains("data"))
    require_same_data(command.earlier.value("data", Json::array()), data_identity(setup));
  TrainFacts facts{
      .data_vocab_size = setup.settings.model.vocab_size, .data_eod_id = setup.settings.data.eod_id, .init_model = {}};
  if (!command.init_path.empty()) facts.init_model = setup.settings.model;
  require_same_rates(resolve_settings(*command.before, facts), resolve_settings(*command.commanded, facts),
                     checkpoint.step);
}

/// An automatic micro-batch stays what it was: it decides the order of sums.
void keep_micro_batch(const Checkpoint& checkpoint, TrainSettings& settings) {
  if (!settings.micro_batch_is_auto) return;
  const int64_t micro = checkpoint.trainer.value("micro_batch_sequences", settings.micro_batch_sequences);
  if (micro < 1 || settings.batch_sequences % micro != 0) {
    throw Error(ErrorKind::format,
                fmt::format("micro_batch_sequences {} does not divide a batch of {}", micro, settings.batch_sequences),
                checkpoint.path + "/trainer.json");
  }
  settings.micro_batch_sequences = micro;
}

std::string summary(const RunOutcome& outcome, const RunSetup& setup, const std::string& out) {
  const std::string interrupted = fmt::format("interrupted by {}", signal_name(outcome.signal));
  const char* status = outcome.status == RunStatus::completed     ? "completed"
                       : outcome.status == RunStatus::interrupted ? interrupted.c_str()
                       : outcome.status == RunStatus::time_limit  ? "stopped at its time limit"
                                                                  : "diverged";
  std::string text = fmt::format("{}: {} after {} of {} steps", out, status, outcome.step, setup.settings.steps);
  if (outcome.step > 0) text += fmt::format(", loss {:.4f}", outcome.final_loss);
  if (outcome.val_loss) text += fmt::format(", validation loss {:.4f}", *outcome.val_loss);
  if (outcome.status == RunStatus::interrupted || outcome.status == RunStatus::time_limit)
    text += "; --resume continues";
  return text + "\n";
}

/// A run directory that is there already, held by this process, and where it goes on.
struct Continued {
  RunDirectory directory;
  std::optional<Checkpoint> checkpoint;
  std::optional<ModelConfig> model;  ///< the checkpoint's
};

Continued continue_run(const std::string& out) {
  Continued run{.directory = RunDirectory::open(out), .checkpoint = {}, .model = {}};
  run.checkpoint = find_resume_point(out);
  if (run.checkpoint)
    run.model = parse_model_config(run.checkpoint->config_text, run.checkpoint->path + "/config.json");
  return run;
}

int train(const Options& options, Context& ctx, const Command& command, RunSetup setup,
          std::optional<Continued> continued) {
  Report report("keel.train/1", "keel-train", options.arguments());
  const std::string out = options.text("--out");
  require_fit(plan_report(ctx, setup.settings, false));
  require_room_for_checkpoint(out, setup.settings);
  if (setup.data.front().tokenizer_path.empty()) log::debug("the data names no tokenizer: checkpoints will hold none");

  RunDirectory directory =
      continued ? std::move(continued->directory) : RunDirectory::create(out, options.flag("--force"));
  RunOptions run;
  if (continued) run.resume = std::move(continued->checkpoint);
  if (run.resume) {
    require_same_run(command, setup, *run.resume);
    keep_micro_batch(*run.resume, setup.settings);
    if (run.resume->step >= setup.settings.steps && directory.is_completed(run.resume->step)) {
      log::info("the run is finished: step {} of {}; nothing to do", run.resume->step, setup.settings.steps);
      return kExitOk;
    }
    log::info("resumed from step {} (saved {}), data position {}, processes {} -> 1", run.resume->step,
              run.resume->saved, run.resume->trainer.value("data_position", int64_t{0}),
              run.resume->trainer.value("processes", 1));
  } else if (options.flag("--resume")) {
    log::warn("no complete checkpoint in {}: starting at step 0", out);
  }
  if (command.resumes) {
    const int64_t step = run.resume ? run.resume->step : 0;
    const int64_t moved =
        directory.rewind_metrics(step, command.earlier["resolved"]["steps"].get<int64_t>(), setup.settings);
    if (moved > 0) log::info("{} lines of metrics.jsonl moved to metrics.before-resume-{}.jsonl", moved, step);
  }
  const std::string created = command.earlier.is_object() ? command.earlier.value("created", utc_time()) : utc_time();
  directory.write_run_json(run_json(setup, created, overrides_json(command, run.resume ? run.resume->step : 0)));
  for (const AppliedOverride& o : command.overrides) {
    log::info("{} changes from {} to {} from here on", o.key, o.before, o.after);
    directory.log_event("override", {{"key", o.key}, {"before", o.before}, {"after", o.after}});
  }
  run.product_rate = measure_product_rate(ctx, setup.settings, 0.1);
  const std::unique_ptr<Progress> progress = make_progress(options);
  const RunOutcome outcome = run_training(ctx, setup, directory, run, *progress);

  report.config() = setup.config.to_json();
  for (const ReportInput& input : report_inputs(setup)) report.add_input(input);
  report.results() = outcome_json(outcome, setup);
  report.write(directory.file("report.json"));
  if (const auto file = options.find_text("--report")) report.write(*file);
  if (options.find_text("--report").value_or("") != "-") write_stdout(summary(outcome, setup, out));
  return outcome.exit_code();
}

int run_keel_train(const Options& options) {
  if (options.flag("--doctor")) return doctor(options.flag("--json"), threads_of(options));
  if (options.flag("--list-schemes")) return list_schemes(options.flag("--json"));
  const bool wants_run = !options.flag("--print-config") && !options.flag("--plan");
  if (wants_run) (void)options.text("--out");  // "must be given"
  const Command command = read_command(options);
  if (options.flag("--print-config")) {
    write_stdout(command.config.print(options.flag("--origins")));
    return kExitOk;
  }
  device_of(options);
  std::optional<Continued> continued;
  if (wants_run && command.resumes) continued = continue_run(options.text("--out"));
  if (wants_run && !continued && !options.flag("--force")) require_no_run(options.text("--out"));
  RunSetup setup =
      prepare_run(command.config, command.init_path, continued ? continued->model : std::optional<ModelConfig>());
  Context ctx(threads_of(options));
  if (options.flag("--plan")) return print_plan(options, ctx, setup);
  return train(options, ctx, command, std::move(setup), std::move(continued));
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::train_tool(), keel::run_keel_train);
}
