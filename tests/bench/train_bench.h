#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/options.h"
#include "keel/train/trainer.h"

// What benchmarks of whole training steps share: a model by a few numbers, and tokens.
namespace keel::bench {

/// A headerless file of pseudo-random ids, removed at the end.
class RandomTokens {
 public:
  RandomTokens(int64_t count, int64_t vocab)
      : path_(std::filesystem::temp_directory_path() / fmt::format("keel-bench-{}.bin", ::getpid())) {
    std::vector<uint16_t> tokens(count);
    uint64_t state = 1;
    for (uint16_t& token : tokens) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      token = static_cast<uint16_t>((state >> 33) % static_cast<uint64_t>(vocab));
    }
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(count * 2));
  }
  ~RandomTokens() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Of an option that a benchmark may have; fp32 without it.
inline ElementType element_type(const nlohmann::json& options, const char* name) {
  const std::string type = options.value(name, "fp32");
  if (type != "fp32" && type != "bf16") throw Error(ErrorKind::usage, fmt::format("--{} is fp32 or bf16", name), type);
  return type == "bf16" ? ElementType::bf16 : ElementType::fp32;
}

inline TrainSettings settings_of(const nlohmann::json& a) {
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
  s.recompute_segment = recompute_segment(a.value("recompute", "none")).value();
  s.precision = element_type(a, "precision");
  s.activations = element_type(a, "activations");
  s.steps = s.schedule.steps = 1000;
  s.optimizer.learning_rate = 1e-3;
  for (ClassSettings& own : s.optimizer.classes) own = {.learning_rate = 1e-3, .weight_decay = 0.01, .eps = 1e-8};
  const std::string micro = a.value("micro", "all");
  if (micro == "auto") s.micro_batch_sequences = automatic_micro_batch(s);
  if (micro != "auto" && micro != "all") s.micro_batch_sequences = std::stoll(micro);
  return s;
}

}  // namespace keel::bench
