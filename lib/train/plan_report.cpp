#include "keel/train/plan_report.h"

#include <algorithm>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/process.h"
#include "keel/base/quantity.h"
#include "keel/model/parameters.h"
#include "keel/train/throughput.h"
#include "keel/train/train_memory.h"

namespace keel {
namespace {

/// Share of a step's time that the matrix products take, for the estimate of the whole.
constexpr double kProductShare = 0.6;
/// Hashing, writing and syncing checkpoints, likewise.
constexpr double kSaveBytesPerSecond = 300e6;
constexpr int64_t kArrays = 3;  // of a checkpoint: weights and AdamW's two averages
/// Long enough that single moments of other work on the machine do not decide.
constexpr double kMeasureSeconds = 2;

Json memory_json(const TrainMemory& memory, const MemoryEstimate& estimate) {
  Json json;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    json[std::string(to_string(static_cast<MemoryKind>(kind))) + "_bytes"] =
        memory.arena.bytes(static_cast<MemoryKind>(kind));
  }
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

std::string memory_text(const Json& memory) {
  std::string text = "memory\n";
  for (const auto& [name, bytes] : memory.items()) {
    const std::string label =
        name == "total_bytes" ? "total" : name.substr(0, name.size() - std::string("_bytes").size());
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

struct TimeEstimate {
  double train = 0, validate = 0, save = 0;
  double total() const { return train + validate + save; }
};

/// How often something happens that follows every `every`-th step (0: none) and the last.
double times_with_last(int64_t steps, int64_t every) {
  return static_cast<double>(every > 0 ? (steps + every - 1) / every : 1);
}

/// At this rate of the products, in FLOP/s.
TimeEstimate estimate_time(const RunSetup& setup, double product_rate) {
  const TrainSettings& s = setup.settings;
  const double seconds_per_token = train_flops_per_token(s.model, s.sequence_length()) / (product_rate * kProductShare);
  TimeEstimate time;
  time.train = seconds_per_token * static_cast<double>(s.steps) * static_cast<double>(s.tokens_per_step());
  if (setup.validation) {
    time.validate = times_with_last(s.steps, s.validate.every_steps) * seconds_per_token / 3 *
                    static_cast<double>(validation_targets(s, *setup.validation));
  }
  double saves = times_with_last(s.steps, s.checkpoint.every_steps) + static_cast<double>(s.checkpoint.at.size());
  if (s.checkpoint.every_seconds > 0) saves += time.train / s.checkpoint.every_seconds;
  time.save = saves * static_cast<double>(kArrays) * sizeof(float) *
              static_cast<double>(count_parameters(s.model).total) / kSaveBytesPerSecond;
  return time;
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

/// Why an automatic micro-batch is not the largest that fits, where it is the limit that made it small.
std::string micro_batch_reason(const TrainSettings& settings, int64_t largest) {
  if (!settings.micro_batch_is_auto || settings.memory_limit_bytes == 0 || settings.micro_batch_sequences >= largest) {
    return "";
  }
  return fmt::format(
      "            (auto stays below train.memory_limit with {} for libraries, on every machine alike; at most 4096 "
      "tokens)\n",
      format_bytes(kLibraryAllowance));
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
  plan.checkpoint_bytes = kArrays * count_parameters(setup.settings.model).total * int64_t{sizeof(float)} + kHeaders;
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

}  // namespace

TrainPlanReport plan_report(Context& ctx, const RunSetup& setup, bool measure) {
  const TrainSettings& settings = setup.settings;
  const TrainMemory memory = plan_training(settings, settings.micro_batch_sequences);
  const MemoryEstimate estimate = estimate_memory(ctx, memory, settings);
  const ParameterCount parameters = count_parameters(settings.model);
  const double flops = train_flops_per_token(settings.model, settings.sequence_length());
  const int64_t tokens = settings.steps * settings.tokens_per_step();

  TrainPlanReport plan;
  plan.total_bytes = estimate.total_bytes();
  plan.limit_bytes = settings.memory_limit_bytes > 0 ? settings.memory_limit_bytes : available_memory_bytes();
  plan.fits = plan.total_bytes <= plan.limit_bytes;
  plan.largest_micro_batch = largest_fitting_micro_batch(ctx, settings, plan.limit_bytes);

  Json& r = plan.results;
  r["parameters"] = parameters.total;
  r["sublayers"] = settings.model.sublayers();
  r["parameter_classes"] = classes_json(settings, memory.layout);
  r["memory"] = memory_json(memory, estimate);
  r["memory_limit_bytes"] = plan.limit_bytes;
  r["fits"] = plan.fits;
  r["micro_batch_sequences"] = settings.micro_batch_sequences;
  r["largest_micro_batch_sequences"] = plan.largest_micro_batch;
  set_number(r, "flops_per_token", flops);
  r["tokens_per_step"] = settings.tokens_per_step();
  r["steps"] = settings.steps;
  r["tokens"] = tokens;
  add_data(setup, plan);
  add_disk(setup, plan);
  r["estimated_seconds"] = nullptr;

  plan.text = fmt::format("model       {} parameters, {} sublayers, width {}, scheme {}\n",
                          format_count(static_cast<double>(parameters.total)), settings.model.sublayers(),
                          settings.model.hidden_size, settings.model.residual_scheme);
  plan.text += fmt::format("run         {} steps of {} tokens = {} tokens, {} FLOPs a token\n", settings.steps,
                           settings.tokens_per_step(), format_count(static_cast<double>(tokens)), format_count(flops));
  plan.text +=
      fmt::format("micro-batch {} of {} sequences; the largest that fits {} is {}\n", settings.micro_batch_sequences,
                  settings.batch_sequences, format_bytes(plan.limit_bytes), plan.largest_micro_batch);
  plan.text += micro_batch_reason(settings, plan.largest_micro_batch);
  plan.text += fmt::format("data        {}\ndisk        {}\n", plan.data_text, plan.disk_text);
  plan.text += classes_text(r["parameter_classes"]) + memory_text(r["memory"]);
  if (measure && plan.fits) {
    const double rate = measure_product_rate(ctx, settings, kMeasureSeconds);
    const TimeEstimate time = estimate_time(setup, rate);
    set_number(r, "measured_product_flops_per_second", rate);
    set_number(r, "estimated_seconds", time.total());
    set_number(r, "estimated_train_seconds", time.train);
    set_number(r, "estimated_validate_seconds", time.validate);
    set_number(r, "estimated_save_seconds", time.save);
    plan.text += fmt::format(
        "time        about {}: training {} ({:.0f} tokens/s), validation {}, saving {}\n"
        "            (products run at {:.0f} GFLOP/s, {:.0f} % of a step assumed, {} a second saved)\n",
        format_duration(time.total()), format_duration(time.train), static_cast<double>(tokens) / time.train,
        format_duration(time.validate), format_duration(time.save), rate / 1e9, 100 * kProductShare,
        format_bytes(static_cast<int64_t>(kSaveBytesPerSecond)));
  }
  return plan;
}

void require_fit(const TrainPlanReport& plan) {
  if (plan.fits) return;
  const std::string hint =
      plan.largest_micro_batch > 0
          ? "train.micro_batch_sequences=" + std::to_string(plan.largest_micro_batch) + " fits"
          : "not even one sequence at a time fits: a shorter data.sequence_length or a smaller model needs less";
  throw Error(ErrorKind::memory,
              "the run needs " + format_bytes(plan.total_bytes) + " and may use " + format_bytes(plan.limit_bytes), "",
              hint);
}

}  // namespace keel
