// Tokens a second of one sequence, token by token, and of many at once, with random weights. One JSON line each:
//   generate_bench [--sublayers 16] [--width 256] [--vocab 8192] [--prompt 64] [--tokens 128] [--sequences 16]
//                  [--threads N]
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keel/base/process.h"
#include "keel/checkpoint/model_folder.h"
#include "keel/generate/generator.h"
#include "support/model_files.h"
#include "timing.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

/// A model with random weights, removed at the end.
class RandomModel {
 public:
  explicit RandomModel(const ModelConfig& config)
      : path_(fs::temp_directory_path() / fmt::format("keel-bench-{}", ::getpid())) {
    fs::create_directory(path_);
    testing::write_model_folder(path_.string(), config, 1);
  }
  ~RandomModel() { fs::remove_all(path_); }
  ModelFolder open() const { return open_model_folder(path_.string()); }

 private:
  fs::path path_;
};

ModelConfig config_of(const nlohmann::json& a) {
  const int64_t width = a["width"], heads = std::max<int64_t>(2, width / 32);
  return resolved({.vocab_size = a["vocab"],
                   .hidden_size = width,
                   .intermediate_size = 3 * width,
                   .num_hidden_layers = a["sublayers"].get<int64_t>() / 2,
                   .num_attention_heads = heads,
                   .num_key_value_heads = heads / 2,
                   .residual_scheme = "keel"});
}

std::vector<GenerationRequest> requests_of(const nlohmann::json& a, int64_t sequences) {
  std::vector<GenerationRequest> requests;
  for (int64_t i = 0; i < sequences; ++i) {
    GenerationRequest request{.max_tokens = a["tokens"], .stream = static_cast<uint64_t>(i)};
    for (int64_t t = 0; t < a["prompt"].get<int64_t>(); ++t) {
      request.prompt.push_back(static_cast<int32_t>((t * 31 + i) % a["vocab"].get<int64_t>()));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

void run(nlohmann::json a) {
  const RandomModel folder(config_of(a));
  Context ctx(a["threads"]);
  for (const int64_t sequences : {int64_t{1}, a["sequences"].get<int64_t>()}) {
    const std::vector<GenerationRequest> requests = requests_of(a, sequences);
    const GeneratorSizes sizes = generator_sizes(requests, 0, sequences, 2048);
    InferenceModel model(ctx, folder.open(), sizes.decoder_options());
    const bench::Timing time = bench::measure(2, [&] { Generator(model, sizes).run(requests, {}); })[0];
    const auto tokens = static_cast<double>(sequences * a["tokens"].get<int64_t>());
    nlohmann::json line = a;
    line["bench"] = "generate";
    line["sequences"] = sequences;
    line["parameters"] = count_parameters(model.config()).total;
    line["tokens_per_second"] = tokens / time.median;
    line["fastest_tokens_per_second"] = tokens / time.fastest;
    line["repeats"] = time.repeats;
    std::cout << line.dump() << std::endl;
  }
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  nlohmann::json a{{"sublayers", 16},
                   {"width", 256},
                   {"vocab", 8192},
                   {"prompt", 64},
                   {"tokens", 128},
                   {"sequences", 16},
                   {"threads", keel::available_cores()}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(2);
    if (!a.contains(name)) {
      std::cerr << "unknown option --" << name << "\n";
      return 2;
    }
    a[name] = std::stoll(argv[i + 1]);
  }
  keel::run(a);
}
