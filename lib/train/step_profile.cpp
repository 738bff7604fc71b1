#include "keel/train/step_profile.h"

#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/median.h"
#include "keel/base/quantity.h"
#include "keel/base/signals.h"
#include "keel/kernels/machine_rate/machine_rate.h"
#include "keel/kernels/memory/memory.h"
#include "keel/model/flops.h"
#include "keel/train/throughput.h"
#include "keel/train/training_run.h"

namespace keel {
namespace {

/// Reports to a profile while it lives.
class Attached {
 public:
  Attached(Context& ctx, OperationProfile& profile) : ctx_(ctx) { ctx_.set_profile(&profile); }
  ~Attached() { ctx_.set_profile(nullptr); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

 private:
  Context& ctx_;
};

bool is_product(const std::string& name) {
  return name.starts_with("product");
}

/// The names of a step's operations, the one that takes longest first.
std::vector<std::string> by_time(const StepTimes& step) {
  std::vector<std::string> names;
  for (const auto& [name, totals] : step.operations) names.push_back(name);
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return step.operations.at(a).seconds > step.operations.at(b).seconds;
  });
  return names;
}

std::string operation_line(const std::string& name, const OperationProfile::Totals& totals,
                           const StepProfile& profile) {
  const OperationLimit limit = operation_limit(name, totals, profile.limits);
  const std::string share_of_limit =
      limit.seconds > 0 && !profile.is_emulated
          ? fmt::format("{:.0f} % {}", 100 * limit.seconds / totals.seconds, limit.by_memory ? "memory" : "flops")
          : "";
  const std::string calls =
      totals.calls < 100'000 ? std::to_string(totals.calls) : format_count(static_cast<double>(totals.calls));
  return fmt::format("{:<25}{:>6}{:>10.3f}{:>8.1f}{:>9.1f}{:>8.1f}{:>14}\n", name, calls, 1e3 * totals.seconds,
                     100 * totals.seconds / profile.step.seconds, totals.flops / totals.seconds / 1e9,
                     totals.bytes / totals.seconds / 1e9, share_of_limit);
}

/// Step t of the run, with a profile of its own.
StepTimes timed_step(Context& ctx, Trainer& trainer, int64_t t) {
  OperationProfile profile;
  const Attached attached(ctx, profile);
  const Stopwatch watch;
  const std::optional<StepResult> result = trainer.step(t);
  StepTimes times{.seconds = watch.seconds(), .operations = profile.totals()};
  if (!result) {
    throw_if_stopped();
    throw Error(ErrorKind::internal, "a step was interrupted without a signal");
  }
  if (result->non_finite) log::warn("loss or gradient of step {} is not finite: its update was skipped", t + 1);
  return times;
}

}  // namespace

MachineLimits measure_limits(Context& ctx, double product_rate) {
  if (ctx.device() != Device::cpu) {
    return {.bytes_per_second = measure_gpu_bandwidth(ctx, 0.3),
            .flops_per_second = measure_gpu_arithmetic(ctx, 0.2),
            .product_flops_per_second = product_rate};
  }
  return {.bytes_per_second = measure_bandwidth(ctx.isa(), ctx.threads(), beyond_caches_bytes(), 0.3),
          .flops_per_second = measure_arithmetic(ctx.isa(), ctx.threads(), 0.2),
          .product_flops_per_second = product_rate};
}

double StepTimes::overhead_seconds() const {
  double sum = 0;
  for (const auto& [name, totals] : operations) sum += totals.seconds;
  return seconds - sum;
}

StepTimes median_step(std::vector<StepTimes> steps) {
  const auto middle = steps.begin() + static_cast<int64_t>((steps.size() - 1) / 2);
  std::nth_element(steps.begin(), middle, steps.end(),
                   [](const StepTimes& a, const StepTimes& b) { return a.seconds < b.seconds; });
  return std::move(*middle);
}

OperationLimit operation_limit(const std::string& name, const OperationProfile::Totals& totals,
                               const MachineLimits& limits) {
  const double computing =
      totals.flops / (is_product(name) ? limits.product_flops_per_second : limits.flops_per_second);
  const double moving = totals.bytes / limits.bytes_per_second;
  return {.seconds = std::max(computing, moving), .by_memory = moving > computing};
}

double StepProfile::flops_per_second() const {
  return flops_per_token * static_cast<double>(tokens_per_step) / step.seconds;
}

Json operations_json(const StepTimes& step, const MachineLimits& limits) {
  Json list = Json::array();
  for (const std::string& name : by_time(step)) {
    const OperationProfile::Totals& totals = step.operations.at(name);
    const OperationLimit limit = operation_limit(name, totals, limits);
    Json& entry = list.emplace_back();
    entry["name"] = name;
    entry["calls"] = totals.calls;
    set_number(entry, "seconds", totals.seconds);
    set_number(entry, "share", totals.seconds / step.seconds);
    set_number(entry, "flops", totals.flops);
    set_number(entry, "bytes", totals.bytes);
    set_number(entry, "limit_seconds", limit.seconds);
    entry["limited_by"] = limit.seconds > 0 ? Json(limit.by_memory ? "memory" : "flops") : Json(nullptr);
    set_number(entry, "limit_fraction", limit.seconds / totals.seconds);
  }
  return list;
}

Json step_profile_json(const StepProfile& p) {
  Json r;
  r["steps"] = p.steps;
  r["tokens_per_step"] = p.tokens_per_step;
  r["micro_batch_sequences"] = p.micro_batch_sequences;
  r["device"] = p.device;
  r["threads"] = p.threads;
  r["instruction_set"] = p.on_gpu ? Json(nullptr) : Json(isa_name(p.isa));
  Json& limits = r["limits"];
  set_number(limits, "memory_bytes_per_second", p.limits.bytes_per_second);
  set_number(limits, "flops_per_second", p.limits.flops_per_second);
  set_number(limits, "product_flops_per_second", p.limits.product_flops_per_second);
  set_number(r, "step_seconds", p.step.seconds);
  set_number(r, "tokens_per_second", static_cast<double>(p.tokens_per_step) / p.step.seconds);
  set_number(r, "flops_per_token", p.flops_per_token);
  set_number(r, "recomputed_flops_per_token", p.recomputed_flops_per_token);
  set_number(r, "flops_per_second", p.flops_per_second());
  set_number(r, "product_rate_share", p.product_rate_share());
  r["peak_resident_bytes"] = p.memory.peak_resident_bytes;
  r["anonymous_bytes"] = p.memory.anonymous_bytes;
  if (p.on_gpu) r["gpu_bytes"] = p.gpu_bytes;
  if (p.is_emulated) r["emulated"] = true;
  r["operations"] = operations_json(p.step, p.limits);
  set_number(r, "overhead_seconds", p.step.overhead_seconds());
  set_number(r, "overhead_share", p.step.overhead_seconds() / p.step.seconds);
  return r;
}

std::string step_profile_text(const StepProfile& p) {
  std::string text = fmt::format("{:<25}{:>6}{:>10}{:>8}{:>9}{:>8}{:>14}\n", "operation", "calls", "ms a step",
                                 "share %", "GFLOP/s", "GB/s", p.is_emulated ? "" : "of its limit");
  for (const std::string& name : by_time(p.step)) {
    text += operation_line(name, p.step.operations.at(name), p);
  }
  const double overhead = p.step.overhead_seconds();
  text += fmt::format("{:<31}{:>10.3f}{:>8.1f}\n\n", "overhead", 1e3 * overhead, 100 * overhead / p.step.seconds);
  text += fmt::format("{:<12}{:.1f} GB/s, {:.0f} GFLOP/s, {:.0f} GFLOP/s in the step's products\n",
                      p.on_gpu ? "GPU" : "machine", p.limits.bytes_per_second / 1e9, p.limits.flops_per_second / 1e9,
                      p.limits.product_flops_per_second / 1e9);
  text += p.on_gpu ? fmt::format("            {}{}\n", p.device,
                                 p.is_emulated ? ": neither its times nor its limits are a GPU's" : "")
                   : fmt::format("            with {} thread{}, instruction set {}\n", p.threads,
                                 p.threads == 1 ? "" : "s", isa_name(p.isa));
  text += fmt::format("step        {:.1f} ms (median of {}) for {} tokens: {:.0f} tokens/s\n", 1e3 * p.step.seconds,
                      p.steps, p.tokens_per_step, static_cast<double>(p.tokens_per_step) / p.step.seconds);
  text += fmt::format("rate        {:.1f} GFLOP/s, {:.1f} % of the products alone; {} FLOPs a token{}\n",
                      p.flops_per_second() / 1e9, 100 * p.product_rate_share(), format_count(p.flops_per_token),
                      p.recomputed_flops_per_token > 0
                          ? fmt::format("\n            and {} recomputed", format_count(p.recomputed_flops_per_token))
                          : "");
  text += fmt::format("memory      peak {} resident{}\n", format_bytes(p.memory.peak_resident_bytes),
                      p.on_gpu ? ", " + format_bytes(p.gpu_bytes) + " of the GPU" : "");
  return text;
}

StepProfile profile_steps(Context& ctx, const RunSetup& setup, int64_t steps, Progress& progress) {
  constexpr double kProductSeconds = 0.3;
  const TrainSettings& settings = setup.settings;
  StepProfile result{.steps = steps,
                     .tokens_per_step = settings.tokens_per_step(),
                     .micro_batch_sequences = settings.micro_batch_sequences,
                     .device = ctx.name(),
                     .on_gpu = ctx.device() != Device::cpu,
                     .is_emulated = ctx.is_emulated(),
                     .threads = ctx.threads(),
                     .isa = ctx.isa(),
                     .flops_per_token = train_flops_per_token(settings.model, settings.sequence_length()),
                     .recomputed_flops_per_token = recompute_flops_per_token(settings.model, settings.sequence_length(),
                                                                             settings.recompute_segment)};
  std::vector<StepTimes> times;
  std::vector<double> product_rates;
  {
    const int64_t free_before = result.on_gpu ? free_device_bytes(ctx) : 0;
    const std::unique_ptr<Trainer> trainer = make_trainer(ctx, setup, nullptr);
    progress.start("profile", steps + 1, "steps", 0, false);
    timed_step(ctx, *trainer, 0);
    result.memory = process_memory();
    if (result.on_gpu) result.gpu_bytes = free_before - free_device_bytes(ctx);
    for (int64_t step = 1; step <= steps; ++step) {
      progress.update(step);
      product_rates.push_back(measure_product_rate(ctx, settings, kProductSeconds));
      times.push_back(timed_step(ctx, *trainer, std::min(step, settings.steps - 1)));
    }
    progress.update(steps + 1);
    progress.finish();
  }
  result.step = median_step(std::move(times));
  result.limits = measure_limits(ctx, median(std::move(product_rates)));
  return result;
}

}  // namespace keel
