// A whole training step against its matrix products run alone in the same process. One JSON line:
//   train_step_bench [--sublayers 64] [--width 256] [--sequence 256] [--tokens 2048] [--vocab 8192] [--scheme keel]
//   [--threads N] [--steps 5]
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/process.h"
#include "keel/data/token_shards.h"
#include "keel/train/throughput.h"
#include "keel/train/trainer.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

/// A headerless file of pseudo-random ids, removed at the end.
class RandomTokens {
 public:
  RandomTokens(int64_t count, int64_t vocab)
      : path_(fs::temp_directory_path() / fmt::format("keel-bench-{}.bin", ::getpid())) {
    std::vector<uint16_t> tokens(count);
    uint64_t state = 1;
    for (uint16_t& token : tokens) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      token = static_cast<uint16_t>((state >> 33) % static_cast<uint64_t>(vocab));
    }
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(count * 2));
  }
  ~RandomTokens() { fs::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

TrainSettings settings_of(const nlohmann::json& a) {
  TrainSettings s;
  const int64_t width = a["width"], heads = std::max<int64_t>(2, width / 32);
  s.model = resolved({.vocab_size = a["vocab"],
                      .hidden_size = width,
                      .intermediate_size = 3 * width,
                      .num_hidden_layers = a["sublayers"].get<int64_t>() / 2,
                      .num_attention_heads = heads,
                      .num_key_value_heads = heads / 2,
                      .max_position_embeddings = a["sequence"],
                      .residual_scheme = a["scheme"]});
  s.data.sequence_length = a["sequence"];
  s.data.vocab_size = s.model.vocab_size;
  s.batch_sequences = s.micro_batch_sequences = a["tokens"].get<int64_t>() / s.data.sequence_length;
  s.steps = s.schedule.steps = 1000;
  s.optimizer.learning_rate = 1e-3;
  for (ClassSettings& own : s.optimizer.classes) own = {.learning_rate = 1e-3, .weight_decay = 0.01, .eps = 1e-8};
  return s;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(nlohmann::json a) {
  const TrainSettings s = settings_of(a);
  const RandomTokens tokens(s.tokens_per_step() * 20 + 1, s.model.vocab_size);
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
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = std::string(argv[i]).substr(2);
    if (!a.contains(key)) {
      fmt::print(stderr, "unknown option {}\n", argv[i]);
      return 2;
    }
    if (a[key].is_string()) {
      a[key] = argv[i + 1];
    } else {
      a[key] = std::stoll(argv[i + 1]);
    }
  }
  try {
    return keel::run(a);
  } catch (const keel::Error& error) {
    fmt::print(stderr, "train_step_bench: error: {}\n", error.what());
    return keel::exit_code(error.kind());
  }
}
