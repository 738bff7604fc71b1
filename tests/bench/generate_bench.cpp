// Tokens a second of a Llama with random weights, for each type of weights, as JSON lines: token by token after a prompt,
// beside how fast this machine reads as many bytes and beside the products alone; then of prompts, beside the same
// products in fp32. All that is compared takes turns; shares and ratios are medians over the rounds.
//   generate_bench [--types fp32,bf16,q8_0] [--sublayers 24] [--width 768] [--intermediate 2048] [--vocab 32000]
//                  [--kv-heads 0] [--prompt 16] [--tokens 16] [--sequences 1] [--temperature 0] [--prefill 512]
//                  [--threads N] [--seconds 3] [--profile 0]
// Bytes of a token: the matrices but the embedding, and the keys and values before it. 0: --kv-heads as many as heads,
// --tokens and --prefill not measured.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/timing.h"
#include "keel/base/median.h"
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
                   .num_key_value_heads = a["kv-heads"] > 0 ? a["kv-heads"].get<int64_t>() : heads,
                   .residual_scheme = "pre"});
}

std::vector<GenerationRequest> requests_of(const nlohmann::json& a, int64_t sequences, int64_t prompt, int64_t tokens) {
  std::vector<GenerationRequest> requests;
  for (int64_t i = 0; i < sequences; ++i) {
    GenerationRequest request{
        .max_tokens = tokens, .sampling = {.temperature = a["temperature"]}, .stream = static_cast<uint64_t>(i)};
    for (int64_t t = 0; t < prompt; ++t) {
      request.prompt.push_back(static_cast<int32_t>((t * 31 + i) % a["vocab"].get<int64_t>()));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Bytes of the matrices that every token reads: all but the embedding, of which it reads a row.
int64_t bytes_of_weights(const ModelConfig& config, WeightType type) {
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
    std::fill_n(arena_.at(region_), region_.count, 0x1p-10F);
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
  /// `rows` rows times matrices of this type that lie in the memory one behind the other.
  void multiply(Context& ctx, WeightType type, const std::vector<std::pair<int64_t, int64_t>>& shapes, int64_t rows,
                int64_t times) const {
    const std::vector<float> x(rows << 16, 0.5F);
    std::vector<float> y(rows << 18);
    const auto* memory = reinterpret_cast<const char*>(arena_.at(region_));
    for (int64_t i = 0; i < times; ++i) {
      const char* at = memory;
      for (const auto& [out, in] : shapes) {
        WeightMatrix W(type, out, in, at);
        if (type == WeightType::q8_0) W.scales = reinterpret_cast<const uint16_t*>(at + out * in);
        linear(ctx, {x.data(), {rows, in}}, W, {y.data(), {rows, out}});
        at += W.bytes();
      }
    }
  }

 private:
  ArenaPlan plan_;
  Region<float> region_;
  Arena arena_;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Seconds that each piece says it took, round by round after one to warm up, at least 5 and until `seconds` have passed.
using Rounds = std::vector<std::vector<double>>;
Rounds take_turns(double seconds, const std::vector<std::function<double()>>& pieces) {
  Rounds rounds;
  for (const auto& piece : pieces) (void)piece();
  const auto start = Clock::now();
  while (rounds.size() < 5 || seconds_since(start) < seconds) {
    rounds.emplace_back();
    for (const auto& piece : pieces) rounds.back().push_back(piece());
  }
  return rounds;
}

/// Median over the rounds of value(round).
template <class Value>
double median_of(const Rounds& rounds, Value value) {
  std::vector<double> values;
  for (const std::vector<double>& round : rounds) values.push_back(value(round));
  return median(std::move(values));
}

std::function<double()> timed(std::function<void()> work) {
  return [work = std::move(work)] {
    const auto begin = Clock::now();
    work();
    return seconds_since(begin);
  };
}

/// A model whose matrices are of one type, and a generator that runs `requests`.
struct Subject {
  WeightType type;
  std::vector<GenerationRequest> requests;
  GeneratorSizes sizes;
  InferenceModel model;
  Generator generator;

  Subject(Context& ctx, const RandomModel& folder, WeightType t, std::vector<GenerationRequest> r)
      : type(t),
        requests(std::move(r)),
        sizes(generator_sizes(requests, 0, std::ssize(requests), 2048)),
        model(ctx, folder.open(), sizes.decoder_options(), {}, type),
        generator(model, sizes) {}

  /// Seconds from where all requests have a token to the end.
  double decode() {
    size_t started = 0;
    std::vector<char> has_token(requests.size());
    Clock::time_point begin;
    const auto on_token = [&](int64_t request, int32_t) {
      started += has_token[request] == 0 ? 1 : 0;
      has_token[request] = 1;
      if (started == requests.size() && begin == Clock::time_point{}) begin = Clock::now();
      return true;
    };
    generator.run(requests, {.on_token = on_token, .on_finish = {}});
    return seconds_since(begin);
  }
};

class Bench {
 public:
  Bench(const nlohmann::json& settings, const RandomModel& folder, Context& ctx)
      : settings_(settings), folder_(folder), ctx_(ctx), config_(config_of(settings)) {
    std::istringstream types(settings["types"].get<std::string>());
    for (std::string name; std::getline(types, name, ',');) types_.push_back(weight_type(name).value());
  }

  void decode() const {
    const int64_t sequences = settings_["sequences"], prompt = settings_["prompt"], tokens = settings_["tokens"];
    std::vector<std::unique_ptr<Subject>> subjects;
    std::vector<std::unique_ptr<Memory>> memories;
    std::vector<std::function<double()>> pieces;
    const int64_t cached = sequences * 2 * config_.key_value_size() * config_.num_hidden_layers * 4;
    const auto bytes_of = [&](WeightType type) {
      return bytes_of_weights(config_, type) + cached * (prompt + tokens / 2);
    };
    const auto shapes = products_of(config_);
    for (const WeightType type : types_) {
      const auto requests = requests_of(settings_, sequences, prompt, tokens + 1);
      Subject* subject = subjects.emplace_back(std::make_unique<Subject>(ctx_, folder_, type, requests)).get();
      Memory* memory = memories.emplace_back(std::make_unique<Memory>(bytes_of(type))).get();
      pieces.emplace_back([subject] { return subject->decode(); });
      pieces.push_back(timed([=, this] { memory->read(ctx_, tokens); }));
      pieces.push_back(timed([=, this] { memory->multiply(ctx_, type, shapes, sequences, tokens); }));
    }
    const Rounds rounds = take_turns(settings_["seconds"], pieces);
    for (size_t i = 0; i < types_.size(); ++i) {
      const auto of = [&](size_t piece) {
        return median_of(rounds, [&](const auto& round) { return round[3 * i + piece]; }) / static_cast<double>(tokens);
      };
      const double bytes = static_cast<double>(bytes_of(types_[i]));
      print({{"bench", "decode"},
             {"weights", to_string(types_[i])},
             {"sequences", sequences},
             {"prompt", prompt},
             {"parameters", count_parameters(config_).total},
             {"bytes_per_step", bytes},
             {"tokens_per_second", static_cast<double>(sequences) / of(0)},
             {"gigabytes_per_second", bytes / of(0) * 1e-9},
             {"reading_gigabytes_per_second", bytes / of(1) * 1e-9},
             {"share_of_reading", median_of(rounds, [&](const auto& r) { return r[3 * i + 1] / r[3 * i]; })},
             {"share_of_products_alone", median_of(rounds, [&](const auto& r) { return r[3 * i + 2] / r[3 * i]; })},
             {std::string("speed_to_") + to_string(types_[0]),
              median_of(rounds, [&](const auto& r) { return r[0] / r[3 * i]; })},
             {"rounds", rounds.size()}});
      if (settings_["profile"] != 0) profile(*subjects[i], "decode profile");
    }
  }

  /// A prompt, with one token drawn; and the model's products alone, as fp32, without the head, which one token passes.
  void prefill() const {
    const int64_t tokens = settings_["prefill"];
    std::vector<std::pair<int64_t, int64_t>> shapes = products_of(config_);
    shapes.pop_back();
    int64_t widest = 0;
    double flop = 0;
    for (const auto& [out, in] : shapes) {
      widest = std::max({widest, out, in});
      flop += 2 * static_cast<double>(tokens * out * in);
    }
    const std::vector<float> x = bench::values(tokens * widest), w = bench::values(widest * widest, 2);
    std::vector<float> y(tokens * widest);
    std::vector<std::unique_ptr<Subject>> subjects;
    std::vector<std::function<double()>> pieces{timed([&] {
      for (const auto& [out, in] : shapes) {
        matmul(ctx_, View<const float, 2>(x.data(), {tokens, in}), View<const float, 2>(w.data(), {out, in}),
               View<float, 2>(y.data(), {tokens, out}), Transpose::b);
      }
    })};
    for (const WeightType type : types_) {
      auto subject = std::make_unique<Subject>(ctx_, folder_, type, requests_of(settings_, 1, tokens, 1));
      pieces.push_back(timed([s = subject.get()] { s->generator.run(s->requests, {}); }));
      subjects.push_back(std::move(subject));
    }
    double all = 0;
    for (int64_t l = 0; l < config_.sublayers(); ++l) {
      all += branch_flops_per_token(config_, l, tokens) * static_cast<double>(tokens);
    }
    const Rounds rounds = take_turns(settings_["seconds"], pieces);
    const auto median = [&](size_t piece) { return median_of(rounds, [&](const auto& r) { return r[piece]; }); };
    for (size_t i = 1; i <= types_.size(); ++i) {
      print({{"bench", "prefill"},
             {"weights", to_string(types_[i - 1])},
             {"tokens", tokens},
             {"tokens_per_second", static_cast<double>(tokens) / median(i)},
             {"gigaflops", all / median(i) * 1e-9},
             {"gigaflops_of_products_alone", flop / median(0) * 1e-9},
             {"share_of_products", median_of(rounds, [&](const auto& r) { return all / r[i] / (flop / r[0]); })},
             {"rounds", rounds.size()}});
      if (settings_["profile"] != 0) profile(*subjects[i - 1], "prefill profile");
    }
  }

 private:
  void print(nlohmann::json line) const {
    line["threads"] = ctx_.threads();
    std::cout << line.dump() << std::endl;
  }

  /// What one run takes in each operation, prompt included.
  void profile(Subject& subject, const char* name) const {
    OperationProfile profile;
    ctx_.set_profile(&profile);
    const double seconds = timed([&] { subject.generator.run(subject.requests, {}); })();
    ctx_.set_profile(nullptr);
    nlohmann::json line{{"bench", name}, {"weights", to_string(subject.type)}, {"seconds", seconds}};
    for (const auto& [operation, totals] : profile.totals()) {
      line["operations"][operation] = {{"calls", totals.calls}, {"seconds", totals.seconds}};
    }
    line["seconds_in_operations"] = profile.seconds();
    print(line);
  }

  const nlohmann::json& settings_;
  const RandomModel& folder_;
  Context& ctx_;
  ModelConfig config_;
  std::vector<WeightType> types_;
};

int run(const nlohmann::json& settings) {
  const RandomModel folder(config_of(settings));
  Context ctx(settings["threads"]);
  const Bench bench(settings, folder, ctx);
  if (settings["tokens"] > 0) bench.decode();
  if (settings["prefill"] > 0) bench.prefill();
  return 0;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  nlohmann::json settings{{"types", "fp32,bf16,q8_0"},
                          {"sublayers", 24},
                          {"width", 768},
                          {"intermediate", 2048},
                          {"vocab", 32000},
                          {"kv-heads", 0},
                          {"prompt", 16},
                          {"tokens", 16},
                          {"sequences", 1},
                          {"temperature", 0},
                          {"prefill", 512},
                          {"threads", keel::available_cores()},
                          {"seconds", 3},
                          {"profile", 0}};
  return keel::bench::run_with_options(argc, argv, std::move(settings), keel::run);
}
