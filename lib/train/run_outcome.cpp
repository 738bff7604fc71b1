#include "keel/train/run_outcome.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/signals.h"
#include "keel/checkpoint/checkpoint_manifest.h"
#include "keel/model/flops.h"

namespace keel {

const RunStatusNames& names_of(RunStatus status) {
  static constexpr RunStatusNames kNames[] = {
      {"completed", "completed", "completed", false, kExitOk},
      {"interrupted", "interrupted", "interrupted", true, 128},
      {"time_limit", "interrupted", "stopped at its time limit", true, kExitTimeLimit},
      {"diverged", "diverged", "diverged", false, kExitDiverged},
  };
  return kNames[static_cast<int>(status)];
}

int RunOutcome::exit_code() const {
  return status == RunStatus::interrupted ? exit_code_of_signal(signal) : names_of(status).exit_code;
}

Json outcome_json(const RunOutcome& o, const TrainSettings& s) {
  Json r;
  r["status"] = names_of(o.status).report;
  if (o.status == RunStatus::interrupted) r["stopped_by"] = signal_name(o.signal);
  if (o.status == RunStatus::time_limit) r["stopped_by"] = "time_limit";
  r["steps"] = o.step;
  r["tokens"] = o.step * s.tokens_per_step();
  r["tokens_per_step"] = s.tokens_per_step();
  r["recompute"] = recompute_mode(s.recompute_segment);
  r["parameters"] = count_parameters(s.model).total;
  r["final_loss"] = nullptr;
  if (std::isfinite(o.final_loss) && !o.non_finite_step) r["final_loss"] = o.final_loss;
  r["val_loss"] = nullptr;
  if (o.val_loss) set_number(r, "val_loss", *o.val_loss);
  r["val_step"] = o.val_step ? Json(*o.val_step) : Json();
  if (o.unigram_loss) set_number(r, "unigram_loss", *o.unigram_loss);
  r["tokens_per_second"] = nullptr;
  r["model_flops_utilisation"] = nullptr;
  if (o.step > 0 && o.train_seconds > 0) {
    const double tokens_per_second = static_cast<double>(o.step * s.tokens_per_step()) / o.train_seconds;
    set_number(r, "tokens_per_second", tokens_per_second);
    if (o.product_rate > 0) {
      const double flops = tokens_per_second * train_flops_per_token(s.model, s.sequence_length());
      set_number(r, "model_flops_utilisation", flops / o.product_rate);
      set_number(r, "measured_product_flops_per_second", o.product_rate);
    }
  }
  set_number(r, "train_seconds", o.train_seconds);
  set_number(r, "startup_seconds", o.startup_seconds);
  set_number(r, "validate_seconds", o.validate_seconds);
  set_number(r, "sample_seconds", o.sample_seconds);
  set_number(r, "save_seconds", o.save_seconds);
  r["peak_memory_bytes"] = o.peak_memory_bytes;
  r["divergence"] = nullptr;
  if (o.non_finite_step) {
    Json divergence;
    divergence["criterion"] = "nonfinite";
    divergence["step"] = *o.non_finite_step;
    set_number(divergence, "learning_rate", o.non_finite_learning_rate);
    divergence["nonfinite"] = true;
    r["divergence"] = divergence;
  }
  r["checkpoints"] = o.checkpoints;
  return r;
}

const char* loss_format(double loss) {
  return std::abs(loss) < 1e5 ? "{:.4f}" : "{:.4g}";
}

std::string loss_text(double loss) {
  return fmt::format(fmt::runtime(loss_format(loss)), loss);
}

/// A second signal ends a run without saving it.
static std::string how_it_goes_on(const RunOutcome& outcome) {
  if (outcome.checkpoints.empty()) return "; not saved: --resume begins again";
  const std::string& newest = outcome.checkpoints.back();
  if (newest.ends_with(detail::checkpoint_name(outcome.step))) return "; --resume continues";
  return "; not saved: --resume continues from " + newest;
}

std::string outcome_text(const RunOutcome& outcome, const TrainSettings& settings, const std::string& run) {
  const RunStatusNames& names = names_of(outcome.status);
  std::string text = run + ": " + names.words;
  if (outcome.status == RunStatus::interrupted) text += " by " + signal_name(outcome.signal);
  text += fmt::format(" after {} of {} steps", outcome.step, settings.steps);
  if (std::isfinite(outcome.final_loss)) text += ", loss " + loss_text(outcome.final_loss);
  if (outcome.val_loss) text += ", validation loss " + loss_text(*outcome.val_loss);
  if (outcome.val_loss && outcome.val_step && *outcome.val_step != outcome.step) {
    text += fmt::format(" (step {})", *outcome.val_step);
  }
  return text + (names.goes_on ? how_it_goes_on(outcome) : "");
}

}  // namespace keel
