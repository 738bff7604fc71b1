// What a sublayer costs in a very deep model against a shallow one: steps of both in turn in one process. One JSON line:
//   depth_bench [--shallow 64] [--sublayers 1024] [--width 64] [--sequence 128] [--tokens 512] [--vocab 512]
//   [--scheme keel] [--threads N] [--rounds 7]
// per_sublayer_ratio is the time of a deep step by its sublayers over that of a shallow one by its own; the marginal
// figures leave out what both spend alike (embedding, head): (t_deep - t_shallow) / (sublayers - shallow).
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/median.h"
#include "keel/base/process.h"
#include "keel/data/token_shards.h"
#include "keel/train/trainer.h"
#include "train_bench.h"

namespace keel {
namespace {

int run(nlohmann::json a) {
  nlohmann::json shallow_options = a;
  shallow_options["sublayers"] = a["shallow"];
  const TrainSettings deep = bench::settings_of(a), shallow = bench::settings_of(shallow_options);
  const int64_t ratio = deep.model.sublayers() / shallow.model.sublayers();
  const bench::RandomTokens tokens(deep.tokens_per_step() * 20 + 1, deep.model.vocab_size);
  const BatchReader reader(*open_token_data(tokens.path(), DataFormat::nanogpt).train, deep.data);
  Context ctx(a["threads"]);
  Trainer deep_trainer(ctx, deep, reader, nullptr), shallow_trainer(ctx, shallow, reader, nullptr);
  deep_trainer.initialise();
  shallow_trainer.initialise();
  deep_trainer.step(0);
  int64_t shallow_step = 0;
  shallow_trainer.step(shallow_step++);
  std::vector<double> deep_seconds, shallow_seconds, ratios;
  for (int64_t t = 1; t <= a["rounds"].get<int64_t>(); ++t) {
    const Stopwatch deep_watch;
    deep_trainer.step(t);
    deep_seconds.push_back(deep_watch.seconds());
    const Stopwatch shallow_watch;
    for (int64_t i = 0; i < ratio; ++i) shallow_trainer.step(shallow_step++);
    shallow_seconds.push_back(shallow_watch.seconds() / static_cast<double>(ratio));
    ratios.push_back(deep_seconds.back() / shallow_seconds.back() / static_cast<double>(ratio));
  }
  const auto L = static_cast<double>(deep.model.sublayers()), few = static_cast<double>(shallow.model.sublayers());
  const double marginal = (median(deep_seconds) - median(shallow_seconds)) / (L - few);
  a["deep_microseconds_per_sublayer"] = median(deep_seconds) / L * 1e6;
  a["shallow_microseconds_per_sublayer"] = median(shallow_seconds) / few * 1e6;
  a["marginal_microseconds_per_sublayer"] = marginal * 1e6;
  a["per_sublayer_ratio"] = median(ratios);
  a["marginal_ratio"] = marginal * few / median(shallow_seconds);
  a["tokens_per_second"] = static_cast<double>(deep.tokens_per_step()) / median(deep_seconds);
  a["anonymous_bytes"] = process_memory().anonymous_bytes;
  fmt::print("{}\n", a.dump());
  return 0;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  nlohmann::json a = {{"bench", "depth"}, {"shallow", 64},    {"sublayers", 1024},
                      {"width", 64},      {"sequence", 128},  {"tokens", 512},
                      {"vocab", 512},     {"scheme", "keel"}, {"threads", keel::available_cores()},
                      {"rounds", 7}};
  return keel::bench::run_with_options(argc, argv, std::move(a), keel::run);
}
