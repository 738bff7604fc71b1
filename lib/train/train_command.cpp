#include "keel/train/train_command.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/atomic_file.h"
#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/log.h"
#include "keel/base/output.h"
#include "keel/base/report.h"
#include "keel/model/model_config_json.h"
#include "keel/train/data_identity.h"
#include "keel/train/resume.h"
#include "keel/train/run_directory.h"
#include "keel/train/run_setup.h"
#include "keel/train/throughput.h"
#include "keel/train/trainer_state.h"
#include "keel/train/training_run.h"

namespace keel {
namespace {

/// The command with what the run directory says.
struct Resolved {
  Config config{train_schema()};
  std::string init_path;
  std::optional<EarlierRun> earlier;  ///< the run goes on
};

Resolved resolve(const TrainCommand& command) {
  if (!command.overrides.empty() && !command.resume) throw Error(ErrorKind::usage, "--override needs --resume");
  Resolved resolved;
  if (command.resume && !command.out.empty() && is_run_directory(command.out)) {
    ResumedConfig resumed =
        resume_config(RunDirectory::read_run_json(command.out), command.configure, command.overrides);
    resolved.config = std::move(resumed.config);
    resolved.init_path = resumed_init(resumed.earlier, command.init_path);
    resolved.earlier = std::move(resumed.earlier);
    return resolved;
  }
  command.configure(resolved.config);
  for (const std::string& assignment : command.overrides) apply_override(resolved.config, assignment);
  resolved.init_path = command.init_path;
  return resolved;
}

/// What is read and made stays out of the reach of --report; a command that goes on writes its report again.
void require_report_writable(const TrainCommand& command, const Resolved& resolved) {
  if (command.report_path.empty()) return;
  std::vector<std::filesystem::path> kept{command.out, command.config_path, resolved.init_path};
  const auto keep_data = [&](const std::string& path) {
    for (const char* suffix : {"", ".bin", ".idx"}) kept.emplace_back(path + suffix);
  };
  for (const char* key : {"data.path", "data.val_path"}) {
    if (const auto path = resolved.config.find_text(key)) keep_data(*path);
  }
  if (resolved.config.has("data.mixture")) {
    for (const Json& part : resolved.config.value("data.mixture")) {
      if (part.is_object() && part.contains("path") && part["path"].is_string()) {
        keep_data(part["path"].get<std::string>());
      }
    }
  }
  Report::require_writable(command.report_path, command.force || command.resume, kept);
}

/// A run directory that is there already, held by this process, and where it goes on.
struct Continued {
  RunDirectory directory;
  std::optional<Checkpoint> checkpoint;
  std::optional<ModelConfig> model;  ///< the checkpoint's
};

Continued continue_run(const std::string& out) {
  Continued run{.directory = RunDirectory::open(out), .checkpoint = {}, .model = {}};
  NewestCheckpoint newest = newest_checkpoint(out);
  for (const CheckpointEntry& entry : newest.skipped) {
    log::warn("skipped a damaged checkpoint: {} ({})", entry.path, entry.damage);
  }
  run.checkpoint = std::move(newest.checkpoint);
  if (run.checkpoint) {
    run.model = parse_model_config(run.checkpoint->config_text, run.checkpoint->path + "/config.json");
  }
  return run;
}

void require_room_for_checkpoint(const std::string& out, const TrainSettings& settings) {
  constexpr int64_t kArrays = 3, kHeaders = int64_t{1} << 20;  // weights and AdamW's two averages
  require_free_space(out, kArrays * count_parameters(settings.model).total * int64_t{sizeof(float)} + kHeaders);
}

void say_where_it_starts(const TrainCommand& command, const Checkpoint* checkpoint) {
  if (checkpoint != nullptr) {
    const TrainerState state = trainer_state(*checkpoint);
    const std::string processes = state.processes == 1 ? "" : fmt::format(", processes {} -> 1", state.processes);
    log::info("resumed from step {} (saved {}), data position {}{}", checkpoint->step, checkpoint->saved,
              state.data_position, processes);
  } else if (command.resume) {
    log::warn("no complete checkpoint in {}: starting at step 0", command.out);
  }
}

/// The checkpoint and the command must belong to one run; what the run decided for itself stays.
void fit_together(const EarlierRun& earlier, const Checkpoint* checkpoint, RunSetup& setup) {
  if (checkpoint != nullptr) {
    require_same_run(earlier, setup, *checkpoint);
    if (checkpoint->step > setup.settings.steps) {
      throw Error(ErrorKind::config,
                  fmt::format("{} steps are done, and the run is to have {}", checkpoint->step, setup.settings.steps),
                  "--steps", "a run that goes on can't get shorter than it is");
    }
  }
  const int64_t micro = resumed_micro_batch(earlier, setup.settings);
  const Json before = earlier.run_json["resolved"]["micro_batch_sequences"];
  if (before != micro) {
    log::info("the micro-batch changes from {} to {} sequences: sums are rounded otherwise from here on",
              json_text(before), micro);
  }
  setup.settings.micro_batch_sequences = micro;
}

/// A finished run stays as it is; a report that is asked for is its own.
TrainResult say_it_is_finished(const TrainCommand& command, const EarlierRun& earlier, const RunDirectory& directory,
                               int64_t step) {
  log::info("the run is finished: step {} of {}; nothing to do: --steps with more than {} goes on", step, step, step);
  for (const AppliedOverride& o : earlier.overrides) {
    log::warn("{} stays {}: a finished run has no steps for another value; raise train.steps", o.key, o.before);
  }
  if (!command.report_path.empty()) {
    const std::string text = read_file(directory.file("report.json"));
    if (command.report_path == "-") {
      write_stdout(text);
    } else {
      write_file_atomically(command.report_path, text);
    }
  }
  return {};
}

/// run.json, metrics.jsonl and events.jsonl as they are when step `step` follows. run.json comes first: a process that
/// is killed in between leaves what the next one brings to the same end.
LogSchedule bring_up_to_date(RunDirectory& directory, const std::optional<EarlierRun>& earlier, const RunSetup& setup,
                             int64_t step) {
  if (!earlier) {
    directory.write_run_json(run_json(setup, utc_time(), Json::array()));
    return LogSchedule(setup.settings);
  }
  const Json overrides = recorded_overrides(*earlier, step);
  LogSchedule schedule(setup.settings, overrides);
  directory.write_run_json(run_json(setup, earlier->run_json["created"].get<std::string>(), overrides));
  const int64_t moved = directory.rewind_metrics(step, schedule);
  if (moved > 0) log::info("{} lines of metrics.jsonl moved to metrics.before-resume-{}.jsonl", moved, step);
  for (const AppliedOverride& o : earlier->overrides) {
    log::info("{} changes from {} to {} from here on", o.key, o.before, o.after);
    directory.log_event("override", {{"key", o.key}, {"before", o.before}, {"after", o.after}});
  }
  return schedule;
}

TrainResult run_and_report(const TrainCommand& command, Report& report, const RunSetup& setup, Trainer& trainer,
                           RunDirectory& directory, const RunStart& start, Progress& progress) {
  TrainResult result;
  result.outcome = run_training(setup, trainer, directory, start, progress);
  report.config() = setup.config.to_json();
  for (const ReportInput& input : report_inputs(setup)) report.add_input(input);
  report.results() = outcome_json(*result.outcome, setup.settings);
  report.write(directory.file("report.json"));
  if (!command.report_path.empty()) report.write(command.report_path);
  result.summary = outcome_text(*result.outcome, setup.settings, command.out);
  result.exit_code = result.outcome->exit_code();
  return result;
}

}  // namespace

Config command_config(const TrainCommand& command) {
  return resolve(command).config;
}

TrainPlanReport plan(Context& ctx, const TrainCommand& command) {
  Report report("keel.train.plan/1", "keel-train", command.arguments);
  const Resolved resolved = resolve(command);
  require_report_writable(command, resolved);
  const RunSetup setup = prepare_run(resolved.config, resolved.init_path);
  TrainPlanReport plan = plan_report(ctx, setup, true);
  report.config() = setup.config.to_json();
  report.results() = plan.results;
  if (!command.report_path.empty()) report.write(command.report_path);
  return plan;
}

TrainResult train(Context& ctx, const TrainCommand& command, Progress& progress) {
  const Stopwatch since_start;
  Report report("keel.train/1", "keel-train", command.arguments);
  const Resolved resolved = resolve(command);
  require_report_writable(command, resolved);
  std::optional<Continued> continued;
  if (resolved.earlier) {
    continued = continue_run(command.out);
  } else {
    RunDirectory::require_creatable(command.out, command.force);
  }
  RunSetup setup = prepare_run(resolved.config, resolved.init_path, continued ? continued->model : std::nullopt);
  setup.identity = data_identity(setup);
  const Checkpoint* checkpoint = continued && continued->checkpoint ? &*continued->checkpoint : nullptr;
  if (resolved.earlier) fit_together(*resolved.earlier, checkpoint, setup);
  if (checkpoint != nullptr && checkpoint->step == setup.settings.steps &&
      continued->directory.is_completed(checkpoint->step)) {
    return say_it_is_finished(command, *resolved.earlier, continued->directory, checkpoint->step);
  }
  require_fit(plan_report(ctx, setup, false));
  require_room_for_checkpoint(command.out, setup.settings);
  if (setup.data.front().tokenizer_path.empty()) log::debug("the data names no tokenizer: checkpoints will hold none");
  say_where_it_starts(command, checkpoint);
  const double product_rate = measure_product_rate(ctx, setup.settings, 0.1);
  const std::unique_ptr<Trainer> trainer = make_trainer(ctx, setup, checkpoint);

  RunDirectory directory =
      continued ? std::move(continued->directory) : RunDirectory::create(command.out, command.force);
  const LogSchedule schedule =
      bring_up_to_date(directory, resolved.earlier, setup, checkpoint != nullptr ? checkpoint->step : 0);
  const RunStart start{.schedule = schedule,
                       .resume = checkpoint,
                       .product_rate = product_rate,
                       .startup_seconds = since_start.seconds()};
  return run_and_report(command, report, setup, *trainer, directory, start, progress);
}

}  // namespace keel
