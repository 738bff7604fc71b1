#include "keel/train/plan_report.h"

#include <algorithm>
#include <cmath>

#include <vector>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/paragraph.h"
#include "keel/base/process.h"
#include "keel/base/quantity.h"
#include "keel/base/signals.h"
#include "keel/kernels/memory/memory.h"
#include "keel/model/flops.h"
#include "keel/model/parameters.h"
#include "keel/train/plan_time.h"
#include "keel/train/recomputation.h"
#include "keel/train/throughput.h"
#include "keel/train/train_memory.h"

namespace keel {
namespace {

/// Long enough that single moments of other work on the machine do not decide.
constexpr double kMeasureSeconds = 2;

/// An automatic mode of recomputation leaves this part of the limit to what the process comes to hold before it trains.
constexpr int64_t kSpare = 64;

Json memory_json(const TrainMemory& memory, const MemoryEstimate& estimate) {
  Json json;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    json[std::string(to_string(static_cast<MemoryKind>(kind))) + "_bytes"] =
        memory.arena.bytes(static_cast<MemoryKind>(kind));
  }
  json["workspace_bytes"] =
      memory.arena.bytes(MemoryKind::workspace) - memory.arena.total_bytes() + estimate.arena_bytes;
  if (estimate.operation_bytes > 0) json["operations_bytes"] = estimate.operation_bytes;
  json["libraries_bytes"] = estimate.library_bytes;
  json["total_bytes"] = estimate.total_bytes();
  return json;
}

Json classes_json(const TrainSettings& settings, const ParameterLayout& layout) {
  Json json;
  for (int c = 0; c < kParameterClasses; ++c) {
    const auto parameter_class = static_cast<ParameterClass>(c);
    int64_t parameters = 0;
    for (const Parameter& p : layout.parameters) {
      if (p.parameter_class == parameter_class) parameters += p.size;
    }
    if (parameters == 0) continue;
    const ClassSettings& own = settings.optimizer.classes[c];
    Json& entry = json[to_string(parameter_class)];
    entry["parameters"] = parameters;
    set_number(entry, "learning_rate", own.learning_rate);
    const bool decays = settings.optimizer.decay_all ||
                        (parameter_class != ParameterClass::norm && parameter_class != ParameterClass::scalar);
    set_number(entry, "weight_decay", decays ? own.weight_decay : 0.0);
    set_number(entry, "eps", own.eps);
  }
  return json;
}

/// A line of the plan, or several of at most 80 columns.
std::string row(const std::string& name, const std::string& text) {
  constexpr size_t kColumns = 80, kIndent = 12;
  return fmt::format("{:<{}}{}\n", name, kIndent, paragraph(text, kColumns, kIndent));
}

std::string memory_text(const Json& memory, bool on_gpu) {
  std::string text = on_gpu ? "memory of the GPU\n" : "memory\n";
  for (const auto& [name, bytes] : memory.items()) {
    std::string label = name.substr(0, name.size() - std::string("_bytes").size());
    if (on_gpu && label == "libraries") label = "CUDA (an estimate)";
    text += fmt::format("  {:<22}{:>12}\n", label, format_bytes(bytes.get<int64_t>()));
  }
  return text;
}

std::string classes_text(const Json& classes) {
  std::string text =
      fmt::format("{:<24}{:>12}{:>15}{:>14}{:>10}\n", "parameters", "count", "learning rate", "weight decay", "eps");
  for (const auto& [name, entry] : classes.items()) {
    text += fmt::format("  {:<22}{:>12}{:>15.4g}{:>14.4g}{:>10.2g}\n", name, entry["parameters"].get<int64_t>(),
                        entry["learning_rate"].get<double>(), entry["weight_decay"].get<double>(),
                        entry["eps"].get<double>());
  }
  return text;
}

/// Checkpoints that are on the disk at the end of the run, those by time not counted; an upper bound where several
/// rules keep the same one.
int64_t kept_checkpoints(const TrainSettings& s) {
  const CheckpointSettings& c = s.checkpoint;
  const auto at = std::count_if(c.at.begin(), c.at.end(), [&](int64_t step) {
    return step < s.steps && (c.every_steps == 0 || step % c.every_steps != 0);
  });
  const int64_t saved = at + (c.every_steps > 0 ? (s.steps - 1) / c.every_steps : 0) + 1;
  if (c.keep_last == 0) return saved;
  return std::min(saved, c.keep_last + at + (c.keep_every > 0 ? s.steps / c.keep_every : 0));
}

/// Why an automatic micro-batch is not the largest that fits.
std::string micro_batch_reason(const TrainSettings& settings, int64_t largest) {
  if (!settings.micro_batch_is_auto || settings.micro_batch_sequences >= largest) return "";
  if (settings.memory_limit_bytes == 0) {
    return row("",
               "(auto: at most 4096 tokens and 4 GB of activations, on every machine alike; "
               "train.micro_batch_sequences sets another)");
  }
  return row("", fmt::format("(auto stays below train.memory_limit with {} for libraries, on every machine alike; at "
                             "most 4096 tokens)",
                             format_bytes(kLibraryAllowance)));
}

std::string recomputation_text(const TrainSettings& settings, bool fits) {
  if (settings.recompute_segment == 0 && !settings.recompute_is_auto) return "";
  const char* reason = !settings.recompute_is_auto ? "" : fits ? " (auto: the least that fits)" : " (auto: none fits)";
  return row("recompute", recompute_mode(settings.recompute_segment) + reason);
}

void add_data(const RunSetup& setup, TrainPlanReport& plan) {
  double data_tokens = 0;
  for (int64_t i = 0; i < setup.train->sources(); ++i) {
    data_tokens += static_cast<double>(setup.train->stream(i).tokens());
  }
  const auto tokens = static_cast<double>(setup.settings.steps * setup.settings.tokens_per_step());
  set_number(plan.results, "data_tokens", data_tokens);
  set_number(plan.results, "epochs", tokens / data_tokens);
  plan.data_text = fmt::format("{} tokens, {:.2f} times the data's {}", format_count(tokens), tokens / data_tokens,
                               format_count(data_tokens));
}

void add_disk(const RunSetup& setup, TrainPlanReport& plan) {
  constexpr int64_t kHeaders = int64_t{1} << 16;
  plan.checkpoint_bytes =
      kCheckpointArrays * count_parameters(setup.settings.model).total * int64_t{sizeof(float)} + kHeaders;
  for (const FileContent& file : setup.tokenizer) plan.checkpoint_bytes += static_cast<int64_t>(file.bytes.size());
  const int64_t kept = kept_checkpoints(setup.settings);
  plan.results["checkpoint_bytes"] = plan.checkpoint_bytes;
  set_number(plan.results, "checkpoints_bytes", static_cast<double>(kept) * static_cast<double>(plan.checkpoint_bytes));
  plan.disk_text = kept == 1
                       ? "1 checkpoint of " + format_bytes(plan.checkpoint_bytes)
                       : fmt::format("{} checkpoints of {}: {}", kept, format_bytes(plan.checkpoint_bytes),
                                     format_bytes(static_cast<int64_t>(static_cast<double>(kept) *
                                                                       static_cast<double>(plan.checkpoint_bytes))));
  if (setup.settings.checkpoint.every_seconds > 0) plan.disk_text += ", and those of checkpoint.every_minutes";
}

/// What a plan is made for.
struct Target {
  const PlanDevice* gpu = nullptr;  ///< null: a device of this machine
  std::string name;
  int64_t memory_bytes = 0;
  EstimateMemory estimate;
  bool has_own_memory = false;  ///< a GPU
  bool is_emulated = false;
};

int64_t limit_of(const TrainSettings& settings, const Target& target) {
  return settings.memory_limit_bytes > 0 ? std::min(settings.memory_limit_bytes, target.memory_bytes)
                                         : target.memory_bytes;
}

Target this_machine(Context& ctx, const TrainSettings& settings) {
  if (ctx.device() != Device::cpu) {
    // CUDA has its context already: what is free is for the run.
    return {.name = ctx.name(),
            .memory_bytes = free_device_bytes(ctx),
            .estimate = estimate_device_memory,
            .has_own_memory = true,
            .is_emulated = ctx.is_emulated()};
  }
  const int64_t held = process_memory().anonymous_bytes;
  return {
      .name = "cpu",
      .memory_bytes = available_memory_bytes(),
      .estimate = [&ctx, &settings, held](const TrainMemory& m) { return estimate_memory(ctx, m, settings, held); }};
}
Target gpu_of(const PlanDevice& device) {
  return {.gpu = &device,
          .name = std::string(device.name),
          .memory_bytes = device.memory_bytes,
          .estimate = estimate_gpu_memory,
          .has_own_memory = true};
}

void choose_recomputation(TrainSettings& settings, const Target& target) {
  const int64_t limit = limit_of(settings, target);
  settings = with_recomputation(settings, settings.micro_batch_sequences, limit - limit / kSpare, target.estimate);
}

Json device_json(const Target& target, ElementType precision) {
  Json json{{"name", target.name}, {"memory_bytes", target.memory_bytes}};
  if (target.gpu == nullptr) return json;
  json["precision"] = to_string(precision);
  set_number(json, "memory_bytes_per_second", target.gpu->memory_bytes_per_second);
  set_number(json, "fp32_flops_per_second", target.gpu->fp32_flops_per_second);
  set_number(json, "tf32_flops_per_second", target.gpu->tf32_flops_per_second);
  set_number(json, "bf16_flops_per_second", target.gpu->bf16_flops_per_second);
  set_number(json, "assumed_utilisation", kAssumedUtilisation);
  return json;
}

/// Of a GPU: what it is, and which of its speeds counts.
std::string device_text(const Target& target, ElementType precision) {
  if (target.is_emulated) return row("device", target.name + ": the CPU stands for a GPU, for tests");
  if (target.gpu == nullptr) return "";
  const PlanDevice& gpu = *target.gpu;
  const std::string others =
      precision == ElementType::bf16
          ? fmt::format("products in bf16, {:.0f} TFLOP/s", gpu.bf16_flops_per_second / 1e12)
          : fmt::format("products in fp32, {:.1f} TFLOP/s; train.precision=bf16 would have {:.0f}",
                        gpu.fp32_flops_per_second / 1e12, gpu.bf16_flops_per_second / 1e12);
  return row("device", fmt::format("{} ({}): {}, {} a second; figures of its data sheet; no such GPU is needed here",
                                   gpu.title, gpu.name, format_bytes(gpu.memory_bytes),
                                   format_bytes(static_cast<int64_t>(gpu.memory_bytes_per_second)))) +
         row("", "(" + others + ")");
}

/// The micro-batches to compare: the run's, two on each side, and the largest that fits.
std::vector<int64_t> compared_micro_batches(const TrainSettings& settings, int64_t largest) {
  constexpr int64_t kEachSide = 2;
  const std::vector<int64_t> all = possible_micro_batches(settings);
  const auto chosen = std::lower_bound(all.begin(), all.end(), settings.micro_batch_sequences);
  const auto first = chosen - std::min<int64_t>(chosen - all.begin(), kEachSide);
  std::vector<int64_t> sizes(first, chosen + std::min<int64_t>(all.end() - chosen, kEachSide + 1));
  if (largest > sizes.back()) sizes.push_back(largest);
  if (largest > 0 && largest < sizes.front()) sizes.insert(sizes.begin(), largest);
  return sizes;
}

Json micro_batches_json(const TrainSettings& settings, const Target& target, const TrainPlanReport& plan) {
  Json list = Json::array();
  for (const int64_t sequences : compared_micro_batches(settings, plan.largest_micro_batch)) {
    throw_if_stopped();
    const TrainSettings with = sequences == settings.micro_batch_sequences
                                   ? settings
                                   : with_recomputation(settings, sequences, plan.limit_bytes, target.estimate);
    const TrainMemory memory = plan_training(with, sequences);
    const int64_t bytes = target.estimate(memory).total_bytes();
    Json entry{{"sequences", sequences},
               {"recompute", recompute_mode(with.recompute_segment)},
               {"total_bytes", bytes},
               {"fits", bytes <= plan.limit_bytes}};
    if (target.gpu != nullptr) {
      set_number(entry, "estimated_tokens_per_second", 1 / estimate_seconds_per_token(with, *target.gpu, memory));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::string micro_batches_text(const Json& list, int64_t chosen) {
  const bool recomputes = std::any_of(list.begin(), list.end(), [](const Json& e) { return e["recompute"] != "none"; });
  const bool has_speed = list.front().contains("estimated_tokens_per_second");
  std::string text = fmt::format("{:<24}{:>12}{}{}\n", "micro-batch (sequences)", "total",
                                 has_speed ? "  tokens/s" : "", recomputes ? "  recompute" : "");
  for (const Json& entry : list) {
    const auto sequences = entry["sequences"].get<int64_t>();
    const std::string note =
        std::string(sequences == chosen ? "  this run's" : "") + (entry["fits"].get<bool>() ? "" : "  does not fit");
    const std::string speed =
        has_speed ? fmt::format("{:>10.0f}", entry["estimated_tokens_per_second"].get<double>()) : "";
    text += fmt::format("  {:<22}{:>12}{}{}{}\n", sequences, format_bytes(entry["total_bytes"].get<int64_t>()), speed,
                        recomputes ? fmt::format("  {:<9}", entry["recompute"].get<std::string>()) : "", note);
  }
  return text;
}

bool one_sequence_fits(const TrainSettings& settings, int64_t limit, const EstimateMemory& estimate) {
  return estimate(plan_training(settings, 1)).total_bytes() <= limit;
}

/// The longest sequence, of those that halve the run's, that fits one at a time; 0 if none does.
int64_t fitting_length(const TrainSettings& run, int64_t limit, const EstimateMemory& estimate) {
  TrainSettings settings = run;
  while (settings.data.sequence_length > 1) {
    throw_if_stopped();
    settings.data.sequence_length /= 2;
    if (one_sequence_fits(settings, limit, estimate)) return settings.data.sequence_length;
  }
  return 0;
}

/// The GPU of the least memory that one sequence at a time fits; null if none does.
const PlanDevice* fitting_device(const TrainSettings& settings) {
  const PlanDevice* found = nullptr;
  for (const PlanDevice& device : plan_devices()) {
    if (found != nullptr && found->memory_bytes <= device.memory_bytes) continue;
    if (one_sequence_fits(settings, device.memory_bytes, estimate_gpu_memory)) found = &device;
  }
  return found;
}

/// The mode of recomputation with which so many sequences at a time fit, in the least time; "" if none does, or the run has
/// tried all.
std::string fitting_recomputation(const TrainSettings& run, int64_t sequences, int64_t limit,
                                  const EstimateMemory& estimate) {
  if (run.recompute_is_auto) return "";
  TrainSettings settings = run;
  settings.recompute_segment = automatic_recompute_segment(run, sequences, limit, estimate);
  const bool fits = estimate(plan_training(settings, sequences)).total_bytes() <= limit;
  return fits ? recompute_mode(settings.recompute_segment) : "";
}

std::string what_would_fit(const TrainSettings& settings, const Target& target, const TrainPlanReport& plan) {
  if (plan.largest_micro_batch > 0) {
    const std::string mode =
        fitting_recomputation(settings, settings.micro_batch_sequences, plan.limit_bytes, target.estimate);
    return fmt::format("train.micro_batch_sequences={} fits", plan.largest_micro_batch) +
           (mode.empty() ? "" : ", and so does train.recompute=" + mode);
  }
  std::vector<std::string> ways;
  const std::string mode = fitting_recomputation(settings, 1, plan.limit_bytes, target.estimate);
  if (!mode.empty()) ways.push_back("train.recompute=" + mode);
  const int64_t length = fitting_length(settings, plan.limit_bytes, target.estimate);
  if (length > 0) ways.push_back(fmt::format("data.sequence_length={}", length));
  const bool limited = target.gpu == nullptr || plan.limit_bytes < target.memory_bytes;
  const PlanDevice* larger = limited ? nullptr : fitting_device(settings);
  if (larger != nullptr) ways.push_back(fmt::format("--plan-device {}", larger->name));
  std::string text = "not even one sequence at a time fits; one does with ";
  if (!ways.empty()) text += fmt::format("{} or ", fmt::join(ways, ", "));
  return text + "a smaller model";
}

std::string time_text(const TrainSettings& settings, const TimeEstimate& time) {
  return row("time", fmt::format("about {}: training {} ({:.0f} tokens/s), validation {}, saving {}",
                                 format_duration(time.total()), format_duration(time.train),
                                 static_cast<double>(settings.steps * settings.tokens_per_step()) / time.train,
                                 format_duration(time.validate), format_duration(time.save)));
}

void add_time(TrainPlanReport& plan, const TrainSettings& settings, const TimeEstimate& time) {
  set_number(plan.results, "estimated_seconds", time.total());
  set_number(plan.results, "estimated_train_seconds", time.train);
  set_number(plan.results, "estimated_validate_seconds", time.validate);
  set_number(plan.results, "estimated_save_seconds", time.save);
  plan.text += time_text(settings, time);
}

/// Everything but the time.
TrainPlanReport describe(const RunSetup& setup, const TrainMemory& memory, const Target& target) {
  const TrainSettings& settings = setup.settings;
  const MemoryEstimate estimate = target.estimate(memory);
  const ParameterCount parameters = count_parameters(settings.model);
  const double flops = train_flops_per_token(settings.model, settings.sequence_length());
  const double recomputed =
      recompute_flops_per_token(settings.model, settings.sequence_length(), settings.recompute_segment);
  const int64_t tokens = settings.steps * settings.tokens_per_step();

  TrainPlanReport plan;
  plan.total_bytes = estimate.total_bytes();
  plan.limit_bytes = limit_of(settings, target);
  plan.fits = plan.total_bytes <= plan.limit_bytes;
  plan.largest_micro_batch = largest_fitting_micro_batch(settings, plan.limit_bytes, target.estimate);
  if (!plan.fits) plan.what_fits = what_would_fit(settings, target, plan);

  Json& r = plan.results;
  r["device"] = device_json(target, settings.precision);
  r["parameters"] = parameters.total;
  r["sublayers"] = settings.model.sublayers();
  r["parameter_classes"] = classes_json(settings, memory.layout);
  r["memory"] = memory_json(memory, estimate);
  r["memory_limit_bytes"] = plan.limit_bytes;
  r["fits"] = plan.fits;
  r["recompute"] = recompute_mode(settings.recompute_segment);
  r["micro_batch_sequences"] = settings.micro_batch_sequences;
  r["largest_micro_batch_sequences"] = plan.largest_micro_batch;
  r["micro_batches"] = micro_batches_json(settings, target, plan);
  set_number(r, "flops_per_token", flops);
  set_number(r, "recomputed_flops_per_token", recomputed);
  r["tokens_per_step"] = settings.tokens_per_step();
  r["steps"] = settings.steps;
  r["tokens"] = tokens;
  add_data(setup, plan);
  add_disk(setup, plan);
  r["estimated_seconds"] = nullptr;

  plan.text = row("model", fmt::format("{} parameters, {} sublayers, width {}, scheme {}",
                                       format_count(static_cast<double>(parameters.total)), settings.model.sublayers(),
                                       settings.model.hidden_size, settings.model.residual_scheme));
  plan.text +=
      row("run", fmt::format("{} steps of {} tokens = {} tokens, {} FLOPs a token{}", settings.steps,
                             settings.tokens_per_step(), format_count(static_cast<double>(tokens)), format_count(flops),
                             recomputed > 0 ? ", " + format_count(recomputed) + " recomputed" : ""));
  plan.text += device_text(target, settings.precision);
  plan.text += row(
      "micro-batch",
      fmt::format("{} of {} sequences; ", settings.micro_batch_sequences, settings.batch_sequences) +
          (plan.largest_micro_batch > 0
               ? fmt::format("the largest that fits {} is {}", format_bytes(plan.limit_bytes), plan.largest_micro_batch)
               : fmt::format("not even one fits {}", format_bytes(plan.limit_bytes))));
  plan.text += micro_batch_reason(settings, plan.largest_micro_batch);
  plan.text += recomputation_text(settings, plan.fits);
  plan.text += row("data", plan.data_text) + row("disk", plan.disk_text);
  plan.text += classes_text(r["parameter_classes"]) + memory_text(r["memory"], target.has_own_memory) +
               micro_batches_text(r["micro_batches"], settings.micro_batch_sequences);
  return plan;
}

}  // namespace

void choose_recomputation(Context& ctx, RunSetup& setup) {
  choose_recomputation(setup.settings, this_machine(ctx, setup.settings));
}

void choose_recomputation(const PlanDevice& device, RunSetup& setup) {
  choose_recomputation(setup.settings, gpu_of(device));
}

TrainPlanReport plan_report(Context& ctx, const RunSetup& setup, bool measure) {
  const TrainSettings& settings = setup.settings;
  const TrainMemory memory = plan_training(settings, settings.micro_batch_sequences);
  TrainPlanReport plan = describe(setup, memory, this_machine(ctx, settings));
  if (!measure || !plan.fits) return plan;
  if (ctx.is_emulated()) {
    plan.text += row("time", "unknown: the emulated device says nothing about how fast a GPU is");
    return plan;
  }
  const double rate = measure_product_rate(ctx, settings, kMeasureSeconds);
  set_number(plan.results, "measured_product_flops_per_second", rate);
  add_time(plan, settings, estimate_time(setup, rate));
  plan.text +=
      row("", fmt::format("(products run at {:.0f} GFLOP/s, {:.0f} % of a step assumed, {} a second saved)", rate / 1e9,
                          100 * kProductShare, format_bytes(static_cast<int64_t>(kSaveBytesPerSecond))));
  return plan;
}

TrainPlanReport plan_report(const PlanDevice& device, const RunSetup& setup) {
  const TrainMemory memory = plan_training(setup.settings, setup.settings.micro_batch_sequences);
  TrainPlanReport plan = describe(setup, memory, gpu_of(device));
  if (!plan.fits) return plan;
  add_time(plan, setup.settings, estimate_time(setup, device, memory));
  plan.text += row(
      "",
      fmt::format("(assumed, not measured: {:.0f} % of the {:.1f} TFLOP/s that products in {} peak at, and at least "
                  "what moving weights, gradients, optimiser and activations takes; {:.0f} microseconds more for "
                  "each product, which a small micro-batch shows; {} a second saved)",
                  100 * kAssumedUtilisation, device.product_flops_per_second(setup.settings.precision) / 1e12,
                  to_string(setup.settings.precision), 1e6 * kAssumedProductSeconds,
                  format_bytes(static_cast<int64_t>(kSaveBytesPerSecond))));
  return plan;
}

void require_fit(const TrainPlanReport& plan) {
  if (plan.fits) return;
  const auto [needed, limit] = format_bytes_apart(plan.total_bytes, plan.limit_bytes);
  throw Error(ErrorKind::memory, "the run needs " + needed + " and may use " + limit, "", plan.what_fits);
}

}  // namespace keel
