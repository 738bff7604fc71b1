// Each operation on a device by itself, beside what the device can copy and multiply: JSON lines on stdout.
//   device_bench [--device cuda] [--rows 8192] [--width 1024] [--vocab 32768] [--sequence 2048] [--product 8192]
//   [--milliseconds 100] [--only TEXT]
// The first line says what the device is. `seconds` is the median of 7 measurements, each of as many runs, enqueued one
// after the other, as take some `milliseconds`; bytes and FLOPs are what the operation has to do at least. Operands are
// pseudo-random. --only runs operations whose name begins so. On a GPU what branches compute with is there in bf16 too,
// `_bf16` behind the name.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/device_operands.h"
#include "bench/options.h"
#include "keel/base/clock.h"
#include "keel/base/median.h"
#include "keel/kernels/adamw/adamw.h"
#include "keel/kernels/attention/attention.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/cross_entropy/cross_entropy.h"
#include "keel/kernels/embedding/embedding.h"
#include "keel/kernels/grad_norm/grad_norm.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/rms_norm/rms_norm.h"
#include "keel/kernels/rope/rope.h"
#include "keel/kernels/seam/seam.h"
#include "keel/kernels/swiglu/swiglu.h"
#include "keel/model/decoder.h"

namespace keel {
namespace {

using bench::Operands;

class Bench {
 public:
  Bench(Context& ctx, const nlohmann::json& options) : ctx(ctx), options_(options) {}

  /// Whether --only begins with the name of a group of operations, or is nothing.
  bool wants(const std::string& group) const {
    const auto only = options_["only"].get<std::string>();
    return only.empty() || only.starts_with(group);
  }

  /// `least`: where the operation itself does not say what it has to do.
  void run(const std::string& name, int64_t rows, int64_t d, const std::function<void()>& work,
           OperationCost least = {}) {
    if (!name.starts_with(options_["only"].get<std::string>())) return;
    OperationProfile profile;
    ctx.set_profile(&profile);
    work();
    ctx.synchronize();
    ctx.set_profile(nullptr);
    double flops = 0, bytes = 0;
    for (const auto& [operation, totals] : profile.totals()) flops += totals.flops, bytes += totals.bytes;
    if (least.bytes > 0) bytes = least.bytes;
    if (least.flops > 0) flops = least.flops;
    int64_t runs = 0;
    const std::vector<double> seconds = measure(work, runs);
    nlohmann::json line = {{"op", name},
                           {"rows", rows},
                           {"d", d},
                           {"seconds", median(seconds)},
                           {"fastest_seconds", *std::min_element(seconds.begin(), seconds.end())},
                           {"runs", runs},
                           {"bytes", bytes},
                           {"flops", flops},
                           {"gb_per_second", bytes / median(seconds) * 1e-9},
                           {"tflops_per_second", flops / median(seconds) * 1e-12}};
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }

  Context& ctx;

 private:
  double time(const std::function<void()>& work, int64_t runs) {
    const Stopwatch watch;
    for (int64_t i = 0; i < runs; ++i) work();
    ctx.synchronize();
    return watch.seconds();
  }
  std::vector<double> measure(const std::function<void()>& work, int64_t& runs) {
    const double wanted = static_cast<double>(options_["milliseconds"].get<int64_t>()) * 1e-3 / 7;
    runs = std::clamp<int64_t>(static_cast<int64_t>(wanted / std::max(time(work, 1), 1e-7)), 1, 10000);
    std::vector<double> seconds;
    for (int i = 0; i < 7; ++i) seconds.push_back(time(work, runs) / static_cast<double>(runs));
    return seconds;
  }
  const nlohmann::json& options_;
};

std::string name_of(const std::string& operation, ElementType type) {
  return operation + (type == ElementType::bf16 ? "_bf16" : "");
}

// ---- ceilings

void bench_copy(Bench& b, int64_t rows, int64_t d) {
  Operands o(b.ctx);
  const View<float, 3> from(o.numbers<float>(rows * d), {1, rows, d});
  const View<float, 2> to = o.matrix(rows, d);
  b.run("copy", rows, d, [&] { sum_products(b.ctx, from, to, false); },
        {.bytes = 2.0 * static_cast<double>(rows * d) * sizeof(float)});
}

void bench_product(Bench& b, int64_t rows, int64_t d, ElementType type) {
  Operands o(b.ctx);
  const auto x = o.matrix(rows, d, type), w = o.matrix(d, d, type), y = o.matrix(rows, d, type);
  b.run(name_of("product", type), rows, d, [&] { matmul(b.ctx, x, w, y, Transpose::b); });
}

// ---- operations

void bench_seam(Bench& b, int64_t rows, int64_t d, ElementType type) {
  Operands o(b.ctx);
  const auto one = o.filled(1, 1), half = o.filled(1, 0.5F);
  const auto x = o.matrix(rows, d), y = o.matrix(rows, d);
  const auto F = o.matrix(rows, d, type), u = o.matrix(rows, d, type);
  const auto g_o = o.filled(d, 1), g_i = o.filled(d, 1), r_o = o.filled(rows, 1), r_i = o.filled(rows, 1);
  const SeamForward forward{.x = x,
                            .F = F,
                            .a = one,
                            .b = half,
                            .outer_gain = g_o,
                            .inner_gain = g_i,
                            .y = y,
                            .u = u,
                            .outer_r = r_o,
                            .inner_r = r_i};
  b.run(name_of("seam_forward", type), rows, d, [&] { seam_forward(b.ctx, forward); });
  SeamBackward backward{.x = x, .F = F, .a = one, .b = half, .outer_gain = g_o, .inner_gain = g_i};
  backward.outer_r = r_o, backward.inner_r = r_i;
  backward.Ds = o.matrix(rows, d), backward.Du = o.matrix(rows, d, type);
  backward.dx = y, backward.dF = u, backward.d_outer_gain = o.vector(d), backward.d_inner_gain = o.vector(d);
  backward.partial = o.matrix(chunk_count(rows), seam_partial_columns(d, false));
  b.run(name_of("seam_backward", type), rows, d, [&] { seam_backward(b.ctx, backward); });
}

void bench_norms(Bench& b, int64_t rows, int64_t d, ElementType type) {
  Operands o(b.ctx);
  const auto x = o.matrix(rows, d, type), y = o.matrix(rows, d, type), dy = o.matrix(rows, d, type);
  const auto w = o.vector(d), s = o.filled(rows, 1), dw = o.vector(d);
  const auto partial = o.matrix(chunk_count(rows), d);
  b.run(name_of("rms_norm", type), rows, d, [&] { rms_norm(b.ctx, x, w, 1e-5F, y, s); });
  b.run(name_of("rms_norm_backward", type), rows, d,
        [&] { rms_norm_backward(b.ctx, dy, x, w, s, y, false, dw, partial); });
}

void bench_rope(Bench& b, int64_t rows, int64_t d, int64_t length, ElementType type) {
  constexpr int64_t kHead = 64;
  Operands o(b.ctx);
  const auto cos = o.matrix(length, kHead / 2), sin = o.matrix(length, kHead / 2);
  std::vector<int32_t> positions;
  for (int64_t n = 0; n < rows; ++n) positions.push_back(static_cast<int32_t>(n % length));
  const auto places = o.copy(positions);
  const auto x = o.heads(rows, std::max<int64_t>(1, d / kHead), kHead, type);
  b.run(name_of("rope", type), rows, d, [&] { rope(b.ctx, places, cos, sin, x); });
}

void bench_swiglu(Bench& b, int64_t rows, int64_t d, ElementType type) {
  Operands o(b.ctx);
  const auto gate_up = o.matrix(rows, 2 * d, type), h = o.matrix(rows, d, type), dh = o.matrix(rows, d, type),
             out = o.matrix(rows, 2 * d, type);
  const auto gate = gate_up.columns(0, d), up = gate_up.columns(d, 2 * d);
  b.run(name_of("swiglu", type), rows, d, [&] { swiglu(b.ctx, gate, up, h); });
  b.run(name_of("swiglu_backward", type), rows, d,
        [&] { swiglu_backward(b.ctx, dh, gate, up, out.columns(0, d), out.columns(d, 2 * d), {}); });
}

void bench_optimiser(Bench& b, int64_t n) {
  Operands o(b.ctx);
  StepScalars s{};
  s.weight_sum = s.clip = s.bias_correction1 = s.bias_correction2 = s.grad_scale = 1;
  const auto scalars = o.copy(std::vector<StepScalars>{s});
  const auto partial = o.copy(std::vector<double>(chunk_count(n, kGradNormChunk)));
  const auto g = o.vector(n), w = o.vector(n), m = o.vector(n), v = o.filled(n, 0.5F);
  b.run("grad_norm", 1, n, [&] { grad_norm(b.ctx, g, scalars, partial); });
  const std::vector<AdamwSegment> segments = {{.offset = 0, .size = n, .weight_decay = 0.1F}};
  b.run("adamw", 1, n, [&] { adamw(b.ctx, segments, 0.9, 0.95, scalars, g, w, m, v); });
  if (b.ctx.device() == Device::cpu) return;
  const View<Bf16, 1> compute(o.numbers<Bf16>(n), {n});
  b.run("adamw_bf16", 1, n, [&] { adamw(b.ctx, segments, 0.9, 0.95, scalars, g, w, m, v, compute); });
}

std::vector<int32_t> random_ids(int64_t n, int64_t vocab) {
  std::vector<int32_t> ids;
  uint32_t state = 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525U + 1013904223U;
    // One in eight tokens is the most frequent one, as in text.
    ids.push_back(state >> 29 == 0 ? 7 : static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab)));
  }
  return ids;
}

void bench_embedding(Bench& b, int64_t rows, int64_t d, int64_t vocab) {
  Operands o(b.ctx);
  const auto ids = o.copy(random_ids(rows, vocab));
  const auto table = o.matrix(vocab, d), y = o.matrix(rows, d);
  b.run("embedding", rows, d, [&] { embedding(b.ctx, ids, table, y); });
  b.run("embedding_backward", rows, d, [&] { embedding_backward(b.ctx, ids, y, table); });
}

/// Rows of logits that training has at a time.
int64_t planned_logits_rows(int64_t rows, int64_t d, int64_t vocab, ElementType type) {
  const ModelConfig config = resolved({.vocab_size = vocab,
                                       .hidden_size = d,
                                       .intermediate_size = d,
                                       .num_hidden_layers = 1,
                                       .num_attention_heads = 1,
                                       .max_position_embeddings = rows});
  ArenaPlan arena;
  return plan_decoder(config, {}, {.max_tokens = rows, .max_positions = rows, .compute = type}, arena).logits_rows;
}

void bench_cross_entropy(Bench& b, int64_t rows, int64_t d, int64_t vocab, ElementType type) {
  Operands o(b.ctx);
  const auto targets = o.copy(random_ids(rows, vocab));
  const auto scalars = o.copy(std::vector<StepScalars>(1));
  const int64_t chunk = planned_logits_rows(rows, d, vocab, type);
  CrossEntropy loss{.x = o.matrix(rows, d, type),
                    .W = AnyView<const void, 2>(o.matrix(vocab, d, type)),
                    .targets = targets,
                    .weights = o.filled(rows, 1),
                    .logits = o.matrix(chunk, vocab),
                    .scalars = scalars,
                    .nll = o.vector(rows),
                    .dx = o.matrix(rows, d, type),
                    .dW = o.matrix(vocab, d)};
  if (type == ElementType::bf16) loss.d_logits = o.matrix(chunk, vocab, type);
  b.run(name_of("cross_entropy", type), rows, d, [&] { cross_entropy(b.ctx, loss); });
}

/// Whole sequences of one length, attended causally: sizes and the least work.
struct AttentionSizes {
  int64_t rows, heads, head_dim, length;

  std::string name(const char* suffix) const {
    return fmt::format("attention_{}x{}_head_{}{}", rows / length, length, head_dim, suffix);
  }
  int64_t width() const { return heads * head_dim; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(head_dim)); }
  std::vector<int32_t> begins() const {
    std::vector<int32_t> begins;
    for (int64_t n = 0; n <= rows; n += length) begins.push_back(static_cast<int32_t>(n));
    return begins;
  }
  /// Two products forward, five backward, over half of the square.
  OperationCost cost(int products, int matrices, ElementType type) const {
    return {.flops = static_cast<double>(products * rows * width() * (length + 1)),
            .bytes = static_cast<double>(matrices * rows * width() * element_bytes(type))};
  }
};

void bench_attention(Bench& b, const AttentionSizes& a, ElementType type) {
  Operands o(b.ctx);
  const auto cu_seqlens = o.copy(a.begins());
  const auto make = [&] { return o.heads(a.rows, a.heads, a.head_dim, type); };
  const auto q = make(), k = make(), v = make(), out = make(), d_out = make(), dq = make(), dk = make(), dv = make();
  const auto lse = o.matrix(a.heads, a.rows), delta = o.matrix(a.heads, a.rows);
  b.run(
      name_of(a.name(""), type), a.rows, a.width(),
      [&] { attention(b.ctx, q, {.keys = k, .values = v}, cu_seqlens, a.scale(), 0, out, lse); }, a.cost(2, 4, type));
  b.run(
      name_of(a.name("_backward"), type), a.rows, a.width(),
      [&] { attention_backward(b.ctx, d_out, q, k, v, out, lse, cu_seqlens, a.scale(), 0, dq, dk, dv, delta); },
      a.cost(5, 8, type));
}

int run(nlohmann::json a) {
  Context ctx(bench::device_named(a["device"]), 1);
  nlohmann::json line = {{"device", a["device"]}, {"name", ctx.name()}};
  if (ctx.device() == Device::cuda) {
    const CudaDeviceInfo info = cuda::device_info(ctx.queue());
    line.update({{"compute_capability", info.compute_capability},
                 {"multiprocessors", info.multiprocessors},
                 {"memory_bytes", info.memory_bytes},
                 {"free_bytes", info.free_bytes},
                 {"shared_bytes", info.shared_bytes},
                 {"l2_bytes", info.l2_bytes}});
  }
  fmt::print("{}\n", line.dump());
  Bench b(ctx, a);
  const int64_t rows = a["rows"], d = a["width"], vocab = a["vocab"],
                length = std::min(a["sequence"].get<int64_t>(), rows);
  const int64_t product = a["product"];
  const auto part = [&](const std::string& name, const std::function<void()>& work) {
    if (b.wants(name)) work();
  };
  const auto in_each_type = [&](const std::string& name, const std::function<void(ElementType)>& work) {
    part(name, [&] { work(ElementType::fp32); });
    if (ctx.device() == Device::cuda) part(name, [&] { work(ElementType::bf16); });
  };
  part("copy", [&] { bench_copy(b, 8 * rows, d); });
  in_each_type("product", [&](ElementType type) { bench_product(b, product, product, type); });
  in_each_type("product", [&](ElementType type) { bench_product(b, rows, d, type); });
  for (int64_t width : {d, 4 * d}) in_each_type("seam", [&](ElementType type) { bench_seam(b, rows, width, type); });
  in_each_type("rms_norm", [&](ElementType type) { bench_norms(b, rows, d, type); });
  in_each_type("swiglu", [&](ElementType type) { bench_swiglu(b, rows, 3 * d, type); });
  const AttentionSizes attentions[] = {{rows, std::max<int64_t>(1, d / 64), 64, std::min<int64_t>(1024, length)},
                                       {rows, std::max<int64_t>(1, d / 128), 128, length}};
  for (const AttentionSizes& sizes : attentions) {
    in_each_type("attention", [&](ElementType type) { bench_attention(b, sizes, type); });
  }
  in_each_type("cross_entropy", [&](ElementType type) { bench_cross_entropy(b, rows, d, vocab, type); });
  if (b.wants("adamw") || b.wants("grad_norm")) bench_optimiser(b, 16 * rows * d);
  in_each_type("rope", [&](ElementType type) { bench_rope(b, rows, d, length, type); });
  part("embedding", [&] { bench_embedding(b, rows, d, vocab); });
  return 0;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  nlohmann::json a = {{"device", "cuda"}, {"rows", 8192},    {"width", 1024},       {"vocab", 32768},
                      {"sequence", 2048}, {"product", 8192}, {"milliseconds", 100}, {"only", ""}};
  return keel::bench::run_with_options(argc, argv, std::move(a), keel::run);
}
