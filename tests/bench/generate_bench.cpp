// Tokens a second with random weights, for each type of weights: of one sequence, token by token, greedy and drawn, beside
// how fast this machine reads memory; of several at once; and of prompts, beside the products alone. JSON lines:
//   generate_bench [--sublayers 24] [--width 768] [--intermediate 2048] [--vocab 32000] [--prompt 16] [--tokens 48]
//                  [--sequences 8] [--prefill 512] [--threads N] [--seconds 3] [--profile 0]
// Reading is as many bytes as a token reads, the matrices but the embedding, in turns with what it is compared with.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keel/base/process.h"
#include "keel/checkpoint/model_folder.h"
#include "keel/generate/generator.h"
#include "keel/inference/packed_weights.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/linear/linear.h"
#include "keel/kernels/machine_rate/machine_rate_cpu.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/model/flops.h"
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
  const int64_t width = a["width"], heads = std::max<int64_t>(1, width / 64);
  return resolved({.vocab_size = a["vocab"],
                   .hidden_size = width,
                   .intermediate_size = a["intermediate"],
                   .num_hidden_layers = a["sublayers"].get<int64_t>() / 2,
                   .num_attention_heads = heads,
                   .num_key_value_heads = heads,
                   .residual_scheme = "pre"});
}

std::vector<GenerationRequest> requests_of(const nlohmann::json& a, int64_t sequences, int64_t prompt, int64_t tokens,
                                           double temperature) {
  std::vector<GenerationRequest> requests;
  for (int64_t i = 0; i < sequences; ++i) {
    GenerationRequest request{
        .max_tokens = tokens, .sampling = {.temperature = temperature}, .stream = static_cast<uint64_t>(i)};
    for (int64_t t = 0; t < prompt; ++t) {
      request.prompt.push_back(static_cast<int32_t>((t * 31 + i) % a["vocab"].get<int64_t>()));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Bytes of the matrices that every token reads: all but the embedding, of which it reads a row.
int64_t bytes_of_token(const ModelConfig& config, WeightType type) {
  const ParameterLayout layout = parameter_layout(config);
  int64_t bytes = 0;
  for (int64_t i = 0; i < std::ssize(layout.parameters); ++i) {
    const Parameter& p = layout.at(i);
    if (!p.is_matrix() || (i == layout.embedding && i != layout.head)) continue;
    bytes += WeightMatrix(type, p.shape[0], p.shape[1], nullptr).bytes();
  }
  return bytes;
}

/// [out, in] of what a token is multiplied by, in order.
std::vector<std::pair<int64_t, int64_t>> products_of(const ModelConfig& c) {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  const int64_t d = c.hidden_size, F = c.intermediate_size;
  for (int64_t block = 0; block < c.num_hidden_layers; ++block) {
    for (const auto& shape :
         {std::pair{c.query_size() + 2 * c.key_value_size(), d}, {d, c.query_size()}, {2 * F, d}, {d, F}}) {
      shapes.push_back(shape);
    }
  }
  shapes.emplace_back(c.vocab_size, d);
  return shapes;
}

/// As much memory as a token reads.
class Memory {
 public:
  explicit Memory(int64_t bytes) : region_(plan_.add<float>(MemoryKind::weights, bytes / 4)), arena_(plan_) {
    std::fill_n(arena_.at(region_), region_.count, 1.0F);
  }
  /// The threads read all of it, `times` times, each the same part.
  void read(Context& ctx, int64_t times) const {
    const int64_t n = region_.count, threads = ctx.threads();
    std::vector<float> sums(threads);
    for (int64_t i = 0; i < times; ++i) {
      for_parts(ctx.team(), threads, [&](int64_t part, int) {
        const int64_t begin = n * part / threads, end = n * (part + 1) / threads;
        sums[part] += KEEL_CALL_ISA(ctx.isa(), read_floats(arena_.at(region_) + begin, end - begin));
      });
    }
    if (std::isnan(sums[0])) std::cerr << "not a number\n";
  }
  /// One row times matrices of this type that fill the memory, in their order.
  void multiply(Context& ctx, WeightType type, const std::vector<std::pair<int64_t, int64_t>>& shapes,
                int64_t times) const {
    const std::vector<float> x(1 << 16, 0.5F);
    std::vector<float> y(1 << 20);
    const auto* memory = reinterpret_cast<const char*>(arena_.at(region_));
    for (int64_t i = 0; i < times; ++i) {
      const char* at = memory;
      for (const auto& [out, in] : shapes) {
        WeightMatrix W(type, out, in, at);
        if (type == WeightType::q8_0) W.scales = reinterpret_cast<const uint16_t*>(at + out * in);
        linear(ctx, {x.data(), {1, in}}, W, {y.data(), {1, out}});
        at += W.bytes();
      }
    }
  }

 private:
  ArenaPlan plan_;
  Region<float> region_;
  Arena arena_;
};

struct Bench {
  nlohmann::json settings;
  const RandomModel& folder;
  Context& ctx;
  WeightType type;

  void print(nlohmann::json line) const {
    line["weights"] = to_string(type);
    line["threads"] = ctx.threads();
    std::cout << line.dump() << std::endl;
  }

  /// Tokens after the prompt: what a run takes beyond one that ends with the first.
  void decode(int64_t sequences, double temperature) const {
    const int64_t prompt = settings["prompt"], tokens = settings["tokens"];
    const auto whole = requests_of(settings, sequences, prompt, tokens + 1, temperature);
    const auto first = requests_of(settings, sequences, prompt, 1, temperature);
    const GeneratorSizes sizes = generator_sizes(whole, 0, sequences, 2048);
    InferenceModel model(ctx, folder.open(), sizes.decoder_options(), {}, type);
    Generator generator(model, sizes);
    const int64_t bytes = bytes_of_token(model.config(), type);
    const Memory memory(bytes);
    const auto times = bench::measure(
        settings["seconds"].get<double>(), [&] { generator.run(whole, {}); }, [&] { generator.run(first, {}); },
        [&] { memory.read(ctx, tokens); }, [&] { memory.multiply(ctx, type, products_of(model.config()), tokens); });
    const double step = (times[0].median - times[1].median) / static_cast<double>(tokens);
    const double rate = static_cast<double>(bytes) / step;
    const double reading = static_cast<double>(bytes * tokens) / times[2].median;
    print({{"bench", "decode"},
           {"sequences", sequences},
           {"temperature", temperature},
           {"parameters", count_parameters(model.config()).total},
           {"bytes_per_step", bytes},
           {"tokens_per_second", static_cast<double>(sequences) / step},
           {"gigabytes_per_second", rate * 1e-9},
           {"reading_gigabytes_per_second", reading * 1e-9},
           {"share_of_reading", rate / reading},
           {"products_alone_gigabytes_per_second", static_cast<double>(bytes * tokens) / times[3].median * 1e-9},
           {"repeats", times[0].repeats}});
    if (settings["profile"] == 0) return;
    OperationProfile profile;
    ctx.set_profile(&profile);
    const bench::Timing timed = bench::measure(0.1, [&] { generator.run(whole, {}); })[0];
    ctx.set_profile(nullptr);
    nlohmann::json line{{"bench", "decode profile"}, {"seconds_a_run", timed.median}};
    const double runs = static_cast<double>(timed.repeats + 1);
    for (const auto& [name, totals] : profile.totals()) {
      line["operations"][name] = {{"calls", static_cast<double>(totals.calls) / runs},
                                  {"seconds", totals.seconds / runs}};
    }
    line["seconds_in_operations"] = profile.seconds() / runs;
    print(line);
  }

  /// A prompt of `tokens` tokens, with one token drawn; and the model's products alone, as fp32.
  void prefill(int64_t tokens) const {
    const auto requests = requests_of(settings, 1, tokens, 1, 0);
    const GeneratorSizes sizes = generator_sizes(requests, 0, 1, 2048);
    InferenceModel model(ctx, folder.open(), sizes.decoder_options(), {}, type);
    Generator generator(model, sizes);
    const ModelConfig& c = model.config();
    std::vector<std::pair<int64_t, int64_t>> shapes = products_of(c);
    shapes.pop_back();  // the head, which one token passes
    int64_t widest = 0;
    for (const auto& [out, in] : shapes) widest = std::max({widest, out, in});
    const std::vector<float> x = bench::values(tokens * widest), w = bench::values(widest * widest, 2);
    std::vector<float> y(tokens * widest);
    const auto products = [&] {
      for (const auto& [out, in] : shapes) {
        matmul(ctx, View<const float, 2>(x.data(), {tokens, in}), View<const float, 2>(w.data(), {out, in}),
               View<float, 2>(y.data(), {tokens, out}), Transpose::b);
      }
    };
    double all = 0, flop = 0;
    for (int64_t l = 0; l < c.sublayers(); ++l)
      all += branch_flops_per_token(c, l, tokens) * static_cast<double>(tokens);
    for (const auto& [out, in] : shapes) flop += 2 * static_cast<double>(tokens * out * in);
    const auto times = bench::measure(
        settings["seconds"].get<double>(), [&] { generator.run(requests, {}); }, products);
    print({{"bench", "prefill"},
           {"tokens", tokens},
           {"tokens_per_second", static_cast<double>(tokens) / times[0].median},
           {"gigaflops", all / times[0].median * 1e-9},
           {"gigaflops_of_products_alone", flop / times[1].median * 1e-9},
           {"share_of_products", all / times[0].median / (flop / times[1].median)},
           {"repeats", times[0].repeats}});
  }
};

void run(const nlohmann::json& settings) {
  const RandomModel folder(config_of(settings));
  Context ctx(settings["threads"]);
  for (const WeightType type : {WeightType::fp32, WeightType::bf16, WeightType::q8_0}) {
    const Bench bench{settings, folder, ctx, type};
    bench.decode(1, 0);
    bench.decode(1, 1);
    if (settings["sequences"] > 1) bench.decode(settings["sequences"], 0);
    if (settings["prefill"] > 0) bench.prefill(settings["prefill"]);
  }
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  nlohmann::json settings{{"sublayers", 24}, {"width", 768},   {"intermediate", 2048},
                          {"vocab", 32000},  {"prompt", 16},   {"tokens", 48},
                          {"sequences", 8},  {"prefill", 512}, {"threads", keel::available_cores()},
                          {"seconds", 3},    {"profile", 0}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(2);
    if (!settings.contains(name)) {
      std::cerr << "unknown option --" << name << "\n";
      return 2;
    }
    settings[name] = std::stoll(argv[i + 1]);
  }
  keel::run(settings);
}
