// A whole training step against its matrix products run alone in the same process. One JSON line:
//   train_step_bench [--sublayers 64] [--width 256] [--sequence 256] [--tokens 2048] [--vocab 8192] [--scheme keel]
//   [--threads N] [--steps 5]
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/process.h"
#include "keel/data/token_shards.h"
#include "keel/model/flops.h"
#include "keel/train/throughput.h"
#include "keel/train/trainer.h"
#include "train_bench.h"

namespace keel {
namespace {

using bench::median;

int run(nlohmann::json a) {
  const TrainSettings s = bench::settings_of(a);
  const bench::RandomTokens tokens(s.tokens_per_step() * 20 + 1, s.model.vocab_size);
  const BatchReader reader(*open_token_data(tokens.path(), DataFormat::nanogpt).train, s.data);
  Context ctx(a["threads"]);
  const double flops = train_flops_per_token(s.model, s.sequence_length()) * static_cast<double>(s.tokens_per_step());
  const double product_flops =
      6.0 * static_cast<double>(count_parameters(s.model).in_products) * static_cast<double>(s.tokens_per_step());
  std::vector<double> steps, products;
  {
    Trainer trainer(ctx, s, reader, nullptr);
    trainer.initialise();
    trainer.step(0);
    for (int64_t t = 1; t <= a["steps"].get<int64_t>(); ++t) {
      products.push_back(product_flops / measure_product_rate(ctx, s, 0.3));
      const Stopwatch watch;
      trainer.step(t);
      steps.push_back(watch.seconds());
    }
    a["anonymous_bytes"] = process_memory().anonymous_bytes;
  }
  a["step_seconds"] = median(steps);
  a["step_seconds_min"] = *std::min_element(steps.begin(), steps.end());
  a["products_seconds"] = median(products);
  a["products_gflops_per_s"] = product_flops / median(products) / 1e9;
  a["step_over_products"] = median(steps) / median(products);
  a["tokens_per_second"] = static_cast<double>(s.tokens_per_step()) / median(steps);
  a["gflops_per_s"] = flops / median(steps) / 1e9;
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
                      {"steps", 5}};
  return keel::bench::run_with_options(argc, argv, std::move(a), keel::run);
}
