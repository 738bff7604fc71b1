#include "keel/train/training_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/process.h"
#include "keel/base/quantity.h"
#include "keel/base/signals.h"
#include "keel/base/utf8.h"
#include "keel/data/unigram.h"
#include "keel/model/flops.h"
#include "keel/model/model_config_json.h"
#include "keel/train/profile_line.h"
#include "keel/train/trainer.h"
#include "keel/train/trainer_state.h"

namespace keel {
namespace {

/// Nats above ln(vocab_size), the loss of equal probabilities, at which a run that ends is said to have diverged: fresh
/// weights score within a few tenths of it.
constexpr double kLossMargin = 1;
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

/// One process's part of a run.
class TrainingRun {
 public:
  TrainingRun(const RunSetup& setup, Trainer& trainer, RunDirectory& directory, const RunStart& start,
              Progress& progress)
      : setup_(setup),
        settings_(setup.settings),
        directory_(directory),
        schedule_(start.schedule),
        progress_(progress),
        trainer_(trainer),
        seconds_before_(start.startup_seconds) {
    outcome_.final_loss = outcome_.grad_norm = kNoValue;
    outcome_.product_rate = start.product_rate;
    outcome_.startup_seconds = start.startup_seconds;
  }

  void start() { directory_.log_event("start", {{"steps", settings_.steps}}); }

  void resume(const Checkpoint& checkpoint) {
    const TrainerState state = trainer_state(checkpoint);
    outcome_.step = saved_step_ = checkpoint.step;
    outcome_.train_seconds = state.seconds;
    outcome_.startup_seconds += state.startup_seconds;
    outcome_.validate_seconds = state.validate_seconds;
    outcome_.sample_seconds = state.sample_seconds;
    outcome_.save_seconds = state.save_seconds + directory_.save_seconds_at(checkpoint.step);
    outcome_.final_loss = state.loss;
    outcome_.grad_norm = state.grad_norm;
    outcome_.val_loss = state.val_loss;
    outcome_.val_step = state.val_step;
    validated_ = state.validated;
    if (const auto loss = validated_ ? std::nullopt : directory_.validation_loss_at(checkpoint.step)) {
      outcome_.val_step = checkpoint.step;
      outcome_.val_loss = *loss;  // made after this checkpoint by a process that was then killed
      validated_ = true;
    }
    sampled_ = state.sampled || !makes_samples();
    directory_.log_event("resume", {{"step", checkpoint.step}, {"checkpoint", checkpoint.path}});
  }

  RunOutcome run() {
    const bool goes_on = !settings_.validate.unigram || !setup_.validation || score_frequencies();
    progress_.start("train", settings_.steps, "steps", outcome_.step, false);
    try {
      while (goes_on && continue_run()) {
      }
      progress_.finish();
      if (!stop_is_urgent()) save();
    } catch (const std::exception& problem) {
      // Damaged data, or samples that cannot be made, must not cost the steps done so far.
      if (is_whole_ && !stop_is_urgent()) save_despite_error();
      log_failure(problem);
      throw;
    }
    say_what_looks_wrong();
    directory_.log_event("end", {{"status", names_of(outcome_.status).event}, {"step", outcome_.step}});
    directory_.sync();
    for (const CheckpointEntry& entry : list_checkpoints(directory_.path())) {
      if (entry.damage.empty()) outcome_.checkpoints.push_back(entry.path);
    }
    return outcome_;
  }

 private:
  /// One step and what follows it; false when the run is over.
  bool continue_run() {
    if (!validated_ && schedule_.validates(outcome_.step) && !validate()) return false;
    if (!sampled_ && schedule_.samples(outcome_.step) && !sample()) return false;
    if (outcome_.step >= settings_.steps) return false;
    if (stopped()) return false;
    if (save_is_due(outcome_.step) && !save()) return false;
    if (has_progressed_ && time_is_up()) return false;
    return train_step();
  }

  void say_what_looks_wrong() const {
    if (empty_steps_ > 1) log::warn("in {} steps no target token counted; they updated nothing", empty_steps_);
    const double uniform = std::log(static_cast<double>(settings_.model.vocab_size));
    if (outcome_.status == RunStatus::completed && outcome_.final_loss > uniform + kLossMargin) {
      log::warn(
          "the loss ended at {:.4g}, above the {:.4g} of a model that knows nothing (ln of {} tokens): it diverged; "
          "try a lower learning rate or a longer warm-up",
          outcome_.final_loss, uniform, settings_.model.vocab_size);
    }
  }

  bool stopped() {
    if (!stop_requested()) return false;
    outcome_.status = RunStatus::interrupted;
    outcome_.signal = stop_signal();
    directory_.log_event("signal", {{"signal", signal_name(outcome_.signal)}, {"step", outcome_.step}});
    return true;
  }

  bool is_out_of_time() const {
    return settings_.time_limit_seconds > 0 && seconds_before_ + since_start_.seconds() >= settings_.time_limit_seconds;
  }

  bool time_is_up() {
    if (!is_out_of_time()) return false;
    outcome_.status = RunStatus::time_limit;
    directory_.log_event("time_limit", {{"step", outcome_.step}});
    return true;
  }

  bool train_step() {
    if (!std::exchange(is_begun_, false) && !begin(outcome_.step)) return !stopped();
    if (!trainer_.finish()) return !stopped();
    is_begun_ = may_begin_next() && begin_next();
    const StepResult result = trainer_.collect();
    outcome_.train_seconds += result.seconds;
    raise_product_rate(result.seconds);
    if (result.non_finite) {
      diverged(result);
      return false;
    }
    ++outcome_.step;
    is_whole_ = false;
    has_progressed_ = true;
    if (result.empty && empty_steps_++ == 0) {
      log::warn("step {}: no target token counts (all are masked); nothing was updated", outcome_.step);
    }
    outcome_.final_loss = result.loss;
    outcome_.grad_norm = result.grad_norm;
    validated_ = !setup_.validation;
    sampled_ = !makes_samples();
    if (schedule_.logs(outcome_.step)) log_step(outcome_.step, result);
    log_profile(outcome_.step, result);
    is_whole_ = true;
    show_progress(result);
    return true;
  }

  bool begin(int64_t step) { return trainer_.begin(step, {.profile = schedule_.profiles(step + 1)}); }

  /// Whether to begin the next step before this one is collected, so that a GPU does not wait for the host: unless it is known
  /// that something comes between the two. What then comes all the same gives it up.
  bool may_begin_next() const {
    const int64_t next = outcome_.step + 1;
    return trainer_.runs_behind() && next < settings_.steps && !schedule_.profiles(next) &&
           !schedule_.profiles(next + 1) && !(setup_.validation && schedule_.validates(next)) &&
           !(makes_samples() && schedule_.samples(next)) && !save_is_due(next) && !stop_requested() &&
           !is_out_of_time();
  }

  /// What fails (data that cannot be read) is tried again in its turn.
  bool begin_next() {
    try {
      return begin(outcome_.step + 1);
    } catch (const std::exception& problem) {
      log::debug("step {} cannot be begun early: {}", outcome_.step + 2, problem.what());
      return false;
    }
  }

  void log_step(int64_t step, const StepResult& result) {
    outcome_.peak_memory_bytes = std::max(outcome_.peak_memory_bytes, process_memory().anonymous_bytes);
    directory_.log_step({.step = step,
                         .tokens = step * settings_.tokens_per_step(),
                         .loss = result.loss,
                         .grad_norm = result.grad_norm,
                         .learning_rate = result.learning_rate,
                         .empty = result.empty,
                         .tokens_per_second = static_cast<double>(settings_.tokens_per_step()) / result.seconds,
                         .seconds = outcome_.train_seconds,
                         .peak_memory_bytes = outcome_.peak_memory_bytes});
  }

  void log_profile(int64_t step, const StepResult& result) {
    if (!result.profile) return;
    directory_.log_profile(profile_line(step, step * settings_.tokens_per_step(), *result.profile));
  }

  void show_progress(const StepResult& result) {
    smoothed_ = smoothed_ > 0 ? 0.9 * smoothed_ + 0.1 * result.seconds : result.seconds;
    const double tokens_per_second = static_cast<double>(settings_.tokens_per_step()) / smoothed_;
    shown_.clear();
    if (!result.empty) {
      shown_ = {{"loss", result.loss, loss_format(result.loss)},
                {"grad_norm", result.grad_norm, result.grad_norm < 1e5 ? "{:.3f}" : "{:.4g}"}};
    }
    shown_.push_back({"lr", result.learning_rate, "{:.3g}"});
    shown_.push_back({"tokens/s", tokens_per_second, "{:.0f}"});
    if (outcome_.product_rate > 0) shown_.push_back({"utilisation", utilisation(tokens_per_second), "{:.2f}"});
    progress_.update(outcome_.step, shown_);
  }

  /// The rate was measured in a moment that other work on the machine may have disturbed: a step that beats it shows
  /// that the machine can do more.
  void raise_product_rate(double step_seconds) {
    if (outcome_.product_rate <= 0) return;
    const double flops = train_flops_per_token(settings_.model, settings_.sequence_length()) *
                         static_cast<double>(settings_.tokens_per_step());
    outcome_.product_rate = std::max(outcome_.product_rate, flops / step_seconds);
  }

  /// Share of the measured rate of the matrix products alone.
  double utilisation(double tokens_per_second) const {
    return tokens_per_second * train_flops_per_token(settings_.model, settings_.sequence_length()) /
           outcome_.product_rate;
  }

  void diverged(const StepResult& result) {
    log_step(outcome_.step + 1, result);
    log_profile(outcome_.step + 1, result);
    give_up(outcome_.step + 1, result.learning_rate);
    // The weights of the last step are worth saving if it is the batch that they cannot take, not they themselves.
    const std::string tensor = trainer_.non_finite_tensor();
    weights_are_suspect_ = !tensor.empty();
    log::error("loss or gradient is not finite at step {} (learning rate {:.3g}): stopped, {}", outcome_.step + 1,
               result.learning_rate,
               tensor.empty() ? fmt::format("weights are those of step {}", outcome_.step)
                              : fmt::format("without saving: {} is not finite after step {}", tensor, outcome_.step));
  }

  /// The run ends: `step` is the one that went wrong.
  void give_up(int64_t step, double learning_rate, const Json& fields = Json::object()) {
    outcome_.status = RunStatus::diverged;
    outcome_.non_finite_step = step;
    outcome_.non_finite_learning_rate = learning_rate;
    Json event{{"step", step}};
    event.update(fields);
    directory_.log_event("non_finite", event);
  }

  /// Of the last update, where a class has none of its own.
  double last_learning_rate() const {
    const OptimizerSettings& o = settings_.optimizer;
    return learning_rate(settings_.schedule, o.learning_rate, o.final_learning_rate,
                         std::max<int64_t>(0, outcome_.step - 1));
  }

  bool validate() {
    if (!setup_.validation) {
      validated_ = true;
      return true;
    }
    is_begun_ = false;
    const Stopwatch watch;
    const std::optional<double> loss = trainer_.validate([this](int64_t done, int64_t total) {
      const ProgressField field{"validating", 100 * static_cast<double>(done) / static_cast<double>(total), "{:.0f}%"};
      progress_.update(outcome_.step, {&field, 1});
      return stop_requested() || (has_progressed_ && is_out_of_time());
    });
    progress_.update(outcome_.step, shown_);  // may be the last line: that of the run, not of the validation
    outcome_.validate_seconds += watch.seconds();
    if (!loss) return !stopped() && !time_is_up();
    outcome_.val_loss = *loss;
    outcome_.val_step = outcome_.step;
    directory_.log_validation(outcome_.step, outcome_.step * settings_.tokens_per_step(), *loss);
    validated_ = has_progressed_ = true;
    log::info("step {}: validation loss {}", outcome_.step, loss_text(*loss));
    if (std::isfinite(*loss)) return true;
    weights_are_suspect_ = true;
    give_up(outcome_.step, last_learning_rate(), {{"validation", true}});
    log::error("the validation loss is not finite after step {}: stopped without saving these weights", outcome_.step);
    return false;
  }

  bool makes_samples() const { return !settings_.validate.sample.prompt_ids.empty(); }

  bool sample() {
    is_begun_ = false;
    const Stopwatch watch;
    const std::optional<std::vector<TrainSample>> samples =
        trainer_.sample(outcome_.step, [this] { return has_progressed_ && is_out_of_time(); });
    outcome_.sample_seconds += watch.seconds();
    if (!samples) return !stopped() && !time_is_up();
    std::vector<Json> lines;
    for (size_t i = 0; i < samples->size(); ++i) lines.push_back(sample_line(i, (*samples)[i]));
    directory_.log_samples(lines);
    sampled_ = has_progressed_ = true;
    return true;
  }

  Json sample_line(size_t index, const TrainSample& sample) const {
    const SampleSettings& s = settings_.validate.sample;
    std::span<const int32_t> shown(sample.tokens);
    if (sample.reason == FinishReason::stop_id) shown = shown.first(shown.size() - 1);
    const std::string text = setup_.codec->continuation(s.prompt_ids[index], shown);
    if (sample.reason == FinishReason::non_finite) {
      log::warn("step {}, sample {}: the model's logits are not finite", outcome_.step, index + 1);
    } else {
      log::info("step {}, sample {}: {}", outcome_.step, index + 1, one_line(s.prompts[index] + "|" + text));
    }
    return {{"step", outcome_.step},
            {"tokens", outcome_.step * settings_.tokens_per_step()},
            {"index", index},
            {"prompt", s.prompts[index]},
            {"prompt_tokens", s.prompt_ids[index].size()},
            {"text", text},
            {"token_ids", sample.tokens},
            {"finish_reason", to_string(sample.reason)}};
  }

  /// False if it was told to stop; a time limit that is over ends the pass, not the run.
  bool score_frequencies() {
    struct GivenUp {};
    const Stopwatch watch;
    try {
      const UnigramLoss loss = unigram_cross_entropy(*setup_.train, *setup_.validation,
                                                     validation_targets(settings_, *setup_.validation), [this] {
                                                       if (stop_requested() || is_out_of_time()) throw GivenUp{};
                                                     });
      outcome_.unigram_loss = loss.nats_per_token;
      log::info("validation loss of token frequencies alone (unigram): {:.4f}", loss.nats_per_token);
    } catch (const GivenUp&) {
    }
    outcome_.startup_seconds += watch.seconds();
    return !stopped();
  }

  bool save_is_due(int64_t step) const {
    if (step == saved_step_) return false;
    const CheckpointSettings& c = settings_.checkpoint;
    if (c.every_steps > 0 && step % c.every_steps == 0) return true;
    if (std::find(c.at.begin(), c.at.end(), step) != c.at.end()) return true;
    return c.every_seconds > 0 && since_save_.seconds() >= c.every_seconds;
  }

  /// False, and nothing written, if the weights or the optimiser's state are not finite: the run is over then.
  bool save() {
    if (outcome_.step == saved_step_) return true;
    if (weights_are_suspect_ || !is_worth_saving()) return false;
    is_begun_ = false;
    is_whole_ = false;  // what cannot be saved now is not tried a second time
    const Stopwatch watch;
    directory_.sync();
    const Retention retention{.keep_last = settings_.checkpoint.keep_last,
                              .keep_every = settings_.checkpoint.keep_every,
                              .keep = settings_.checkpoint.at};
    const SavedCheckpoint saved = save_checkpoint(directory_.path(), contents(), retention);
    saved_step_ = outcome_.step;
    since_save_.restart();
    outcome_.save_seconds += watch.seconds();
    for (const std::string& problem : saved.not_removed)
      log::warn("an old checkpoint could not be removed: {}", problem);
    directory_.log_event(
        "save", {{"step", outcome_.step}, {"path", saved.path}, {"bytes", saved.bytes}, {"seconds", watch.seconds()}});
    log::info("saved {} ({}, {:.1f} s)", saved.path, format_bytes(saved.bytes), watch.seconds());
    is_whole_ = true;
    return true;
  }

  /// The error that ends the run is the one to report, whatever becomes of this.
  void save_despite_error() {
    try {
      save();
    } catch (const std::exception& problem) {
      log::error("step {} could not be saved: {}", outcome_.step, problem.what());
    }
  }

  /// Where the disk is full the line is lost; the error itself is not.
  void log_failure(const std::exception& problem) {
    try {
      directory_.log_event("end", {{"status", "failed"}, {"step", outcome_.step}, {"error", problem.what()}});
      directory_.sync();
    } catch (const std::exception& second) {
      log::debug("events.jsonl lacks the end of the run: {}", second.what());
    }
  }

  bool is_worth_saving() {
    const std::string tensor = trainer_.non_finite_tensor();
    if (tensor.empty()) return true;
    weights_are_suspect_ = true;
    give_up(outcome_.step, last_learning_rate());
    log::error("{} is not finite after step {} (learning rate {:.3g}): stopped without saving", tensor, outcome_.step,
               last_learning_rate());
    return false;
  }

  CheckpointContents contents() const {
    Json state = trainer_state_json({.step = outcome_.step,
                                     .tokens = outcome_.step * settings_.tokens_per_step(),
                                     .data_position = outcome_.step * settings_.batch_sequences,
                                     .batch_sequences = settings_.batch_sequences,
                                     .micro_batch_sequences = settings_.micro_batch_sequences,
                                     .seed = settings_.seed,
                                     .seconds = outcome_.train_seconds,
                                     .startup_seconds = outcome_.startup_seconds,
                                     .validate_seconds = outcome_.validate_seconds,
                                     .sample_seconds = outcome_.sample_seconds,
                                     .save_seconds = outcome_.save_seconds,
                                     .validated = validated_,
                                     .sampled = sampled_,
                                     .loss = outcome_.final_loss,
                                     .grad_norm = outcome_.grad_norm,
                                     .val_loss = outcome_.val_loss,
                                     .val_step = outcome_.val_step});
    return {.step = outcome_.step,
            .config_text = json_text(model_config_json(settings_.model), 2) + "\n",
            .model = trainer_.weight_tensors(),
            .optimizer = trainer_.optimizer_tensors(),
            .trainer = std::move(state),
            .tokenizer = setup_.tokenizer};
  }

  const RunSetup& setup_;
  const TrainSettings& settings_;
  RunDirectory& directory_;
  LogSchedule schedule_;
  Progress& progress_;
  Trainer& trainer_;
  RunOutcome outcome_;
  Stopwatch since_start_, since_save_;
  double seconds_before_ = 0;  // of this process, before since_start_
  // This process has done a step or a validation. Before that no time limit ends it: a limit shorter than start-up or
  // a validation would have every process stop where the last one did.
  bool has_progressed_ = false;
  double smoothed_ = 0;               // seconds a step
  std::vector<ProgressField> shown_;  // of the last step
  int64_t empty_steps_ = 0;           // of this process, without a target that counts
  int64_t saved_step_ = 0;            // step 0 needs no checkpoint: it follows from the config
  bool weights_are_suspect_ =
      false;               // they, or the validation loss, are not finite: an earlier checkpoint is worth more
  bool is_begun_ = false;  // the next step, by trainer_.begin(), and nothing came since
  bool is_whole_ = true;   // weights and lines are those of outcome_.step, neither being changed nor lost
  bool validated_ = true;  // the validation after outcome_.step is done, or none is due
  bool sampled_ = true;    // likewise the samples
};

}  // namespace

std::unique_ptr<Trainer> make_trainer(Context& ctx, const RunSetup& setup, const Checkpoint* resume) {
  auto trainer = std::make_unique<Trainer>(ctx, setup.settings, *setup.train, setup.validation.get(),
                                           [] { return stop_requested(); });
  if (resume == nullptr) {
    if (setup.init) {
      trainer->load_weights(setup.init->tensors);
    } else {
      trainer->initialise();
    }
    return trainer;
  }
  if (!resume->optimizer) {
    throw Error(ErrorKind::format, "the checkpoint has no optimiser state", resume->path,
                "--init starts a new run from its weights");
  }
  trainer->load_weights(resume->model);
  trainer->load_optimizer(*resume->optimizer);
  return trainer;
}

RunOutcome run_training(const RunSetup& setup, Trainer& trainer, RunDirectory& directory, const RunStart& start,
                        Progress& progress) {
  TrainingRun run(setup, trainer, directory, start, progress);
  if (start.resume != nullptr) {
    run.resume(*start.resume);
  } else {
    run.start();
  }
  return run.run();
}

}  // namespace keel
