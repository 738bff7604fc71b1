// A whole training step against its matrix products run alone in the same process, and where its time goes. One JSON line:
//   train_step_bench [--sublayers 64] [--width 256] [--sequence 256] [--tokens 2048] [--vocab 8192] [--scheme keel]
//   [--threads N] [--steps 5] [--seconds 0] [--recompute none] [--activations fp32] [--precision fp32] [--micro all|auto|N]
//   [--products 1] [--device cpu]
// At least `steps` steps, and more until they have taken `seconds`, 50 at most; before each the products are measured.
// --products 0 leaves that out, and the machine's limits: the peak of memory is then that of training alone. operations
// and overhead are of the step of median time. On a GPU products are not timed (--products 0), steps overlap as those of a
// run do, and device_bytes is what its memory lost to the run, planned_device_bytes what the plan says.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/median.h"
#include "keel/base/process.h"
#include "keel/data/token_shards.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/memory/memory.h"
#include "keel/model/flops.h"
#include "keel/train/step_profile.h"
#include "keel/train/throughput.h"
#include "keel/train/train_memory.h"
#include "keel/train/trainer.h"
#include "train_bench.h"

namespace keel {
namespace {

constexpr int64_t kMostSteps = 50;

struct Measured {
  std::vector<StepTimes> steps;
  std::vector<double> step_seconds, product_rates;
  ProcessMemory memory;
  int64_t device_bytes = 0, planned_device_bytes = 0;
};

double alone_step(Trainer& trainer, int64_t t) {
  const Stopwatch watch;
  trainer.step(t);
  return watch.seconds();
}

/// As a run does it: the next one is begun before this one is collected. `t` is begun, but for the first.
double overlapped_step(Trainer& trainer, int64_t t) {
  if (t == 1) trainer.begin(t);
  trainer.finish();
  trainer.begin(t + 1);
  return trainer.collect().seconds;
}

Measured measure(Context& ctx, const TrainSettings& s, const BatchReader& reader, const nlohmann::json& a) {
  Measured found;
  OperationProfile profile;
  const bool on_gpu = ctx.device() == Device::cuda;
  const int64_t free_before = on_gpu ? free_device_bytes(ctx) : 0;
  Trainer trainer(ctx, s, reader, nullptr);
  trainer.initialise();
  trainer.step(0);
  double passed = 0;
  for (int64_t t = 1; t <= a["steps"] || (passed < a["seconds"] && t <= kMostSteps); ++t) {
    if (a["products"] != 0) found.product_rates.push_back(measure_product_rate(ctx, s, 0.3));
    profile.clear();
    if (a["products"] != 0) ctx.set_profile(&profile);
    found.step_seconds.push_back(on_gpu ? overlapped_step(trainer, t) : alone_step(trainer, t));
    ctx.set_profile(nullptr);
    passed += found.step_seconds.back();
    found.steps.push_back({.seconds = found.step_seconds.back(), .operations = profile.totals()});
  }
  if (a["products"] != 0) found.product_rates.push_back(measure_product_rate(ctx, s, 0.3));
  found.memory = process_memory();
  if (on_gpu) {
    found.device_bytes = free_before - free_device_bytes(ctx);
    found.planned_device_bytes = estimate_device_memory(trainer.memory()).total_bytes();
  }
  return found;
}

void add_operations(const StepTimes& step, const MachineLimits& limits, nlohmann::json& a) {
  double bytes = 0;
  for (const auto& [name, totals] : step.operations) bytes += totals.bytes;
  a["operations"] = operations_json(step, limits);
  a["overhead_seconds"] = step.overhead_seconds();
  a["profiled_step_seconds"] = step.seconds;
  a["bytes_per_token"] = bytes / a["tokens"].get<double>();
  a["limit_bytes_per_second"] = limits.bytes_per_second;
  a["limit_flops_per_second"] = limits.flops_per_second;
}

int run(nlohmann::json a) {
  const TrainSettings s = bench::settings_of(a);
  const bench::RandomTokens tokens(s.tokens_per_step() * 20 + 1, s.model.vocab_size);
  const BatchReader reader(*open_token_data(tokens.path(), DataFormat::nanogpt).train, s.data);
  Context ctx(bench::device_named(a["device"]), a["threads"]);
  if (ctx.device() == Device::cuda) a["products"] = 0;
  const double flops = train_flops_per_token(s.model, s.sequence_length()) * static_cast<double>(s.tokens_per_step());
  const Measured found = measure(ctx, s, reader, a);
  const double step = median(found.step_seconds);
  a["anonymous_bytes"] = found.memory.anonymous_bytes;
  a["peak_resident_bytes"] = found.memory.peak_resident_bytes;
  if (ctx.device() == Device::cuda) {
    a["device_name"] = ctx.name();
    a["device_bytes"] = found.device_bytes;
    a["planned_device_bytes"] = found.planned_device_bytes;
  }
  a["micro_batch_sequences"] = s.micro_batch_sequences;
  a["timed_steps"] = found.steps.size();
  a["step_seconds"] = step;
  a["step_seconds_min"] = *std::min_element(found.step_seconds.begin(), found.step_seconds.end());
  a["tokens_per_second"] = static_cast<double>(s.tokens_per_step()) / step;
  a["flops_per_token"] = flops / static_cast<double>(s.tokens_per_step());
  a["gflops_per_s"] = flops / step / 1e9;
  if (a["products"] != 0) {
    const double product_flops =
        6.0 * static_cast<double>(count_parameters(s.model).in_products) * static_cast<double>(s.tokens_per_step());
    const double rate = median(found.product_rates);
    a["products_seconds"] = product_flops / rate;
    a["products_gflops_per_s"] = rate / 1e9;
    a["step_over_products"] = step * rate / product_flops;
    std::vector<double> shares;  // of what products reached just before and after each step: machines change speed
    for (size_t i = 0; i < found.step_seconds.size(); ++i) {
      const double around = (found.product_rates[i] + found.product_rates[i + 1]) / 2;
      shares.push_back(flops / found.step_seconds[i] / around);
    }
    a["product_rate_share"] = median(shares);
    add_operations(median_step(found.steps), measure_limits(ctx, rate), a);
  }
  fmt::print("{}\n", a.dump());
  return 0;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  nlohmann::json a = {{"bench", "train_step"},
                      {"sublayers", 64},
                      {"width", 256},
                      {"sequence", 256},
                      {"tokens", 2048},
                      {"vocab", 8192},
                      {"scheme", "keel"},
                      {"threads", keel::available_cores()},
                      {"steps", 5},
                      {"seconds", 0},
                      {"recompute", "none"},
                      {"activations", "fp32"},
                      {"precision", "fp32"},
                      {"micro", "all"},
                      {"products", 1},
                      {"device", "cpu"}};
  return keel::bench::run_with_options(argc, argv, std::move(a), keel::run);
}
