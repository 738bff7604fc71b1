#include "keel/train/train_command.h"

#include <algorithm>
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
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/memory/memory.h"
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
  if (command.resume && command.out.empty())
    throw Error(ErrorKind::usage, "--resume needs --out, the run to go on with");
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
  keep_uppermost_length(resolved.config);
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

/// The newest checkpoint of a run that goes on, with its model.
struct Continued {
  std::optional<Checkpoint> checkpoint;
  std::optional<ModelConfig> model;

  const Checkpoint* found() const { return checkpoint ? &*checkpoint : nullptr; }
};

Continued find_checkpoint(const TrainCommand& command, const Resolved& resolved) {
  Continued run;
  if (!resolved.earlier) return run;
  NewestCheckpoint newest = newest_checkpoint(command.out);
  for (const CheckpointEntry& entry : newest.skipped) {
    log::warn("skipped a damaged checkpoint: {} ({})", entry.path, entry.damage);
  }
  run.checkpoint = std::move(newest.checkpoint);
  if (run.checkpoint) {
    run.model = parse_model_config(run.checkpoint->config_text, run.checkpoint->path + "/config.json");
  }
  return run;
}

/// --force would remove the checkpoints that the new run is to start from.
void require_init_elsewhere(const TrainCommand& command) {
  namespace fs = std::filesystem;
  if (!command.force || command.init_path.empty() || !is_run_directory(command.out)) return;
  const fs::path run = fs::canonical(command.out), init = fs::weakly_canonical(command.init_path);
  if (std::mismatch(run.begin(), run.end(), init.begin(), init.end()).first != run.end()) return;
  throw Error(ErrorKind::usage, "--init lies in the run that --force replaces", command.init_path,
              "name another run directory");
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

/// The setup of the command's run, which goes on from `continued` where there is an earlier one: the checkpoint and the
/// command must belong to one run, and what the run decided for itself stays.
RunSetup set_up(const TrainCommand& command, const Resolved& resolved, const Continued& continued) {
  RunSetup setup = prepare_run(resolved.config, resolved.init_path, continued.model, command.open_codec);
  if (!resolved.earlier) return setup;
  setup.identity = data_identity(setup);
  require_same_run(*resolved.earlier, setup, continued.found());
  const int64_t micro = resumed_micro_batch(*resolved.earlier, setup.settings);
  const auto before = resolved.earlier->run_json["resolved"]["micro_batch_sequences"].get<int64_t>();
  if (before != micro) {
    log::info("the micro-batch changes from {} to {} sequences: sums are rounded otherwise from here on", before,
              micro);
  }
  setup.settings.micro_batch_sequences = micro;
  return setup;
}

/// A finished run stays as it is; a report that is asked for is its own.
TrainResult say_it_is_finished(const TrainCommand& command, const EarlierRun& earlier, const RunDirectory& directory,
                               const TrainSettings& settings) {
  const bool rates_stay = settings.schedule.name == ScheduleName::constant;
  log::info("the run is finished: step {} of {}; nothing to do: {} with N above {} goes on", settings.steps,
            settings.steps, rates_stay ? "--steps N" : "--override train.steps=N", settings.steps);
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

RunHistory history_of(const std::optional<EarlierRun>& earlier, int64_t step, const std::string& device) {
  if (!earlier) return {.created = utc_time(), .device = device};
  return {.created = earlier->run_json["created"].get<std::string>(),
          .device = earlier->run_json.value("device", ""),
          .overrides = recorded_overrides(*earlier, step),
          .resumes = recorded_resumes(*earlier, step, device)};
}

/// Of a run that goes on elsewhere, or otherwise.
void say_what_changes(const EarlierRun& earlier, const std::string& device, const TrainSettings& settings) {
  const std::string noted = recorded_device(earlier), before = noted.empty() ? device : noted;
  const std::string precision = earlier.before.text("train.precision"), now = to_string(settings.precision);
  if (before == device && precision == now) return;
  log::warn(
      "the run computed in {} on {} until here, and computes in {} on {} from here on: numbers are rounded otherwise",
      precision, before, now, device);
}

/// run.json and the files of lines as they are when the checkpoint's step (null: 0) is the last one done. run.json
/// comes first: a process that is killed in between leaves what the next one brings to the same end.
LogSchedule bring_up_to_date(RunDirectory& directory, const std::optional<EarlierRun>& earlier, const RunSetup& setup,
                             const RunHistory& history, const Checkpoint* checkpoint) {
  LogSchedule schedule(setup.settings, history.overrides);
  directory.write_run_json(run_json(setup, history));
  if (!earlier) return schedule;
  const int64_t step = checkpoint != nullptr ? checkpoint->step : 0;
  const auto say_moved = [step](const char* name, int64_t lines) {
    if (lines == 0) return;
    log::info("{} line{} of {}.jsonl moved to {}.before-resume-{}.jsonl", lines, lines == 1 ? "" : "s", name, name,
              step);
  };
  say_moved("metrics", directory.rewind_metrics(step, schedule));
  say_moved("profile", directory.rewind_profile(step, schedule));
  const bool sampled = checkpoint != nullptr && trainer_state(*checkpoint).sampled;
  say_moved("samples", directory.rewind_samples(step, sampled, schedule));
  for (const AppliedOverride& o : earlier->overrides) {
    log::info("{} changes from {} to {} from here on", o.key, o.before, o.after);
    directory.log_event("override", {{"key", o.key}, {"before", o.before}, {"after", o.after}});
  }
  return schedule;
}

void say_what_it_takes(Context& ctx, const RunSetup& setup, const TrainPlanReport& plan) {
  log::info("trains on {}; disk: {}", plan.data_text, plan.disk_text);
  log::info("computes in {} on {}", to_string(setup.settings.precision), ctx.name());
  if (setup.settings.precision == ElementType::bf16 && setup.settings.activations == ElementType::bf16) {
    log::warn("train.activations=bf16 changes nothing where train.precision is bf16");
  }
  if (setup.settings.recompute_is_auto) {
    log::info("train.recompute=auto is {}", recompute_mode(setup.settings.recompute_segment));
  }
  if (!setup.init) return;
  for (const std::string& warning : setup.init->warnings) log::warn("--init: {}", warning);
  log::info("starts from the weights of {}; optimiser, schedule and data begin anew", setup.init->path);
}

/// Everything that is known before the first step is in it already: inputs may be gone when training ends.
void fill_in(Report& report, const RunSetup& setup) {
  report.config() = setup.config.to_json();
  for (const ReportInput& input : report_inputs(setup)) report.add_input(input);
}

/// Of a GPU: what was planned but for CUDA's own, the most that was asked for, and what the whole device has given out.
Json gpu_memory_json(Context& ctx, const TrainPlanReport& plan) {
  const CudaDeviceInfo info = cuda::device_info(ctx.queue());
  return {{"planned_bytes", plan.total_bytes - plan.results["memory"]["libraries_bytes"].get<int64_t>()},
          {"peak_bytes", peak_device_bytes(ctx)},
          {"device_used_bytes", info.memory_bytes - info.free_bytes}};
}

TrainResult finish(const TrainCommand& command, Report& report, const RunSetup& setup, const RunHistory& history,
                   RunDirectory& directory, Context& ctx, const TrainPlanReport& plan, RunOutcome outcome) {
  report.results() = outcome_json(outcome, setup.settings);
  report.results()["device"] = ctx.name();
  if (ctx.device() != Device::cpu) report.results()["gpu_memory"] = gpu_memory_json(ctx, plan);
  report.results()["overrides"] = history.overrides;
  report.results()["resumes"] = history.resumes;
  report.write(directory.file("report.json"));
  if (!command.report_path.empty()) report.write(command.report_path);
  TrainResult result;
  result.summary = outcome_text(outcome, setup.settings, command.out);
  result.exit_code = outcome.exit_code();
  result.outcome = std::move(outcome);
  return result;
}

}  // namespace

Config command_config(const TrainCommand& command) {
  return resolve(command).config;
}

TrainPlanReport plan(Context& ctx, const TrainCommand& command, const PlanDevice* device) {
  Report report("keel.train.plan/1", "keel-train", command.arguments);
  const Resolved resolved = resolve(command);
  require_report_writable(command, resolved);
  RunSetup setup = set_up(command, resolved, find_checkpoint(command, resolved));
  if (device == nullptr) require_precision(ctx, setup.settings);
  device != nullptr ? choose_recomputation(*device, setup) : choose_recomputation(ctx, setup);
  TrainPlanReport plan = device != nullptr ? plan_report(*device, setup) : plan_report(ctx, setup, true);
  if (plan.fits) require_readable_start(setup);
  report.config() = setup.config.to_json();
  report.results() = plan.results;
  if (!command.report_path.empty()) report.write(command.report_path);
  return plan;
}

StepProfile profile(Context& ctx, const TrainCommand& command, int64_t steps, Progress& progress) {
  Report report("keel.train.profile/1", "keel-train", command.arguments);
  const Resolved resolved = resolve(command);
  require_report_writable(command, resolved);
  RunSetup setup = set_up(command, resolved, find_checkpoint(command, resolved));
  require_precision(ctx, setup.settings);
  choose_recomputation(ctx, setup);
  require_fit(plan_report(ctx, setup, false));
  require_readable_start(setup);
  StepProfile profile = profile_steps(ctx, setup, steps, progress);
  report.config() = setup.config.to_json();
  report.results() = step_profile_json(profile);
  if (!command.report_path.empty()) report.write(command.report_path);
  return profile;
}

TrainResult train(Context& ctx, const TrainCommand& command, Progress& progress) {
  const Stopwatch since_start;
  Report report("keel.train/1", "keel-train", command.arguments);
  const Resolved resolved = resolve(command);
  require_report_writable(command, resolved);
  std::optional<RunDirectory> held;
  if (resolved.earlier) {
    held = RunDirectory::open(command.out);
  } else {
    RunDirectory::require_creatable(command.out, command.force);
    require_init_elsewhere(command);
  }
  const Continued continued = find_checkpoint(command, resolved);
  const Checkpoint* checkpoint = continued.found();
  RunSetup setup = set_up(command, resolved, continued);
  if (checkpoint != nullptr && checkpoint->step == setup.settings.steps && held->is_completed(checkpoint->step)) {
    return say_it_is_finished(command, *resolved.earlier, *held, setup.settings);
  }
  require_precision(ctx, setup.settings);
  choose_recomputation(ctx, setup);
  const TrainPlanReport plan = plan_report(ctx, setup, false);
  require_fit(plan);
  require_free_space(command.out, plan.checkpoint_bytes);
  require_readable_start(setup);
  if (!resolved.earlier) setup.identity = data_identity(setup);
  if (setup.tokenizer.empty()) log::debug("the data names no tokenizer: checkpoints will hold none");
  say_where_it_starts(command, checkpoint);
  if (checkpoint != nullptr) say_what_changes(*resolved.earlier, ctx.name(), setup.settings);
  say_what_it_takes(ctx, setup, plan);
  const double product_rate = measure_product_rate(ctx, setup.settings, 0.1);
  const std::unique_ptr<Trainer> trainer = make_trainer(ctx, setup, checkpoint);
  fill_in(report, setup);

  const int64_t step = checkpoint != nullptr ? checkpoint->step : 0;
  RunDirectory directory = held ? std::move(*held) : RunDirectory::create(command.out, command.force);
  const RunHistory history = history_of(resolved.earlier, step, ctx.name());
  const LogSchedule schedule = bring_up_to_date(directory, resolved.earlier, setup, history, checkpoint);
  const RunStart start{.schedule = schedule,
                       .resume = checkpoint,
                       .product_rate = product_rate,
                       .startup_seconds = since_start.seconds()};
  return finish(command, report, setup, history, directory, ctx, plan,
                run_training(setup, *trainer, directory, start, progress));
}

}  // namespace keel
