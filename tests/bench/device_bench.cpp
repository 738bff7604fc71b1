// Each operation on a device by itself, beside what the device can copy and multiply: JSON lines on stdout.
//   device_bench [--device cuda] [--rows 8192] [--width 1024] [--vocab 32768] [--sequence 2048] [--product 8192]
//   [--milliseconds 100] [--only TEXT]
// The first line says what the device is. `seconds` is the median of 7 measurements, each of as many runs, enqueued one
// after the other, as take some `milliseconds`; bytes and FLOPs are what the operation has to do at least. Operands are
// pseudo-random. --only runs operations whose name begins so.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/options.h"
#include "keel/base/clock.h"
#include "keel/base/median.h"
#include "keel/kernels/adamw/adamw.h"
#include "keel/kernels/attention/attention.h"
#include "keel/kernels/attention/attention_cuda.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/cross_entropy/cross_entropy.h"
#include "keel/kernels/embedding/embedding.h"
#include "keel/kernels/grad_norm/grad_norm.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/memory/memory.h"
#include "keel/kernels/rms_norm/rms_norm.h"
#include "keel/kernels/rope/rope.h"
#include "keel/kernels/seam/seam.h"
#include "keel/kernels/swiglu/swiglu.h"

namespace keel {
namespace {

constexpr int64_t kFloat = sizeof(float);

/// Memory of the device for one operation's operands.
class Operands {
 public:
  explicit Operands(Context& ctx) : ctx_(ctx) {}
  ~Operands() {
    ctx_.synchronize();
    for (void* memory : taken_) give_back(memory);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  /// Pseudo-random values in [-1, 1) of a repeated piece.
  float* floats(int64_t n) {
    static const std::vector<float> kValues = random_values();
    float* to = take<float>(n);
    for (int64_t i = 0; i < n; i += std::ssize(kValues)) {
      const int64_t part = std::min<int64_t>(std::ssize(kValues), n - i);
      copy_to_device<float>(ctx_, {kValues.data(), {part}}, {to + i, {part}});
    }
    ctx_.synchronize();
    return to;
  }
  View<float, 1> vector(int64_t n) { return {floats(n), {n}}; }
  View<float, 2> matrix(int64_t rows, int64_t d) { return {floats(rows * d), {rows, d}}; }
  View<float, 3> heads(int64_t rows, int64_t n, int64_t d) { return {floats(rows * n * d), {rows, n, d}}; }
  template <class T>
  View<T, 1> copy(const std::vector<T>& values) {
    T* to = take<T>(std::ssize(values));
    copy_to_device<T>(ctx_, {values.data(), {std::ssize(values)}}, {to, {std::ssize(values)}});
    ctx_.synchronize();
    return {to, {std::ssize(values)}};
  }
  View<float, 1> filled(int64_t n, float value) { return copy(std::vector<float>(n, value)); }

 private:
  static std::vector<float> random_values() {
    std::vector<float> values(1 << 20);
    uint32_t state = 12345;
    for (float& x : values) {
      state = state * 1664525U + 1013904223U;
      x = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
    }
    return values;
  }
  template <class T>
  T* take(int64_t n) {
    const int64_t bytes = (n * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    taken_.push_back(ctx_.device() == Device::cpu ? std::aligned_alloc(256, bytes) : allocate_on_device(ctx_, bytes));
    if (taken_.back() == nullptr) throw Error(ErrorKind::memory, "not enough memory for the operands");
    return static_cast<T*>(taken_.back());
  }
  void give_back(void* memory) {
    if (ctx_.device() == Device::cpu) return std::free(memory);
    release_on_device(ctx_, memory);
  }

  Context& ctx_;
  std::vector<void*> taken_;
};

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

// ---- ceilings

void bench_copy(Bench& b, int64_t rows, int64_t d) {
  Operands o(b.ctx);
  const View<float, 3> from(o.floats(rows * d), {1, rows, d});
  const View<float, 2> to = o.matrix(rows, d);
  b.run("copy", rows, d, [&] { sum_products(b.ctx, from, to, false); },
        {.bytes = 2.0 * static_cast<double>(rows * d * kFloat)});
}

void bench_product(Bench& b, int64_t rows, int64_t d) {
  Operands o(b.ctx);
  const auto x = o.matrix(rows, d), w = o.matrix(d, d), y = o.matrix(rows, d);
  b.run("product", rows, d, [&] { matmul(b.ctx, x, w, y, Transpose::b); });
}

// ---- operations

void bench_seam(Bench& b, int64_t rows, int64_t d) {
  Operands o(b.ctx);
  const auto one = o.filled(1, 1), half = o.filled(1, 0.5F);
  const auto x = o.matrix(rows, d), F = o.matrix(rows, d), y = o.matrix(rows, d), u = o.matrix(rows, d);
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
  b.run("seam_forward", rows, d, [&] { seam_forward(b.ctx, forward); });
  SeamBackward backward{.x = x, .F = F, .a = one, .b = half, .outer_gain = g_o, .inner_gain = g_i};
  backward.outer_r = r_o, backward.inner_r = r_i, backward.Ds = o.matrix(rows, d), backward.Du = o.matrix(rows, d);
  backward.dx = y, backward.dF = u, backward.d_outer_gain = o.vector(d), backward.d_inner_gain = o.vector(d);
  backward.partial = o.matrix(chunk_count(rows), seam_partial_columns(d, false));
  b.run("seam_backward", rows, d, [&] { seam_backward(b.ctx, backward); });
}

void bench_norms(Bench& b, int64_t rows, int64_t d) {
  Operands o(b.ctx);
  const auto x = o.matrix(rows, d), y = o.matrix(rows, d), dy = o.matrix(rows, d);
  const auto w = o.vector(d), s = o.filled(rows, 1), dw = o.vector(d);
  const auto partial = o.matrix(chunk_count(rows), d);
  b.run("rms_norm", rows, d, [&] { rms_norm(b.ctx, x, w, 1e-5F, y, s); });
  b.run("rms_norm_backward", rows, d, [&] { rms_norm_backward(b.ctx, dy, x, w, s, y, false, dw, partial); });
}

void bench_rope(Bench& b, int64_t rows, int64_t d, int64_t length) {
  constexpr int64_t kHead = 64;
  Operands o(b.ctx);
  const auto cos = o.matrix(length, kHead / 2), sin = o.matrix(length, kHead / 2);
  std::vector<int32_t> positions;
  for (int64_t n = 0; n < rows; ++n) positions.push_back(static_cast<int32_t>(n % length));
  const auto places = o.copy(positions);
  const auto x = o.heads(rows, std::max<int64_t>(1, d / kHead), kHead);
  b.run("rope", rows, d, [&] { rope(b.ctx, places, cos, sin, x); });
}

void bench_swiglu(Bench& b, int64_t rows, int64_t d) {
  Operands o(b.ctx);
  const auto gate_up = o.matrix(rows, 2 * d), h = o.matrix(rows, d), dh = o.matrix(rows, d),
             out = o.matrix(rows, 2 * d);
  const auto gate = gate_up.columns(0, d), up = gate_up.columns(d, 2 * d);
  b.run("swiglu", rows, d, [&] { swiglu(b.ctx, gate, up, h); });
  b.run("swiglu_backward", rows, d,
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

void bench_cross_entropy(Bench& b, int64_t rows, int64_t d, int64_t vocab) {
  Operands o(b.ctx);
  const auto targets = o.copy(random_ids(rows, vocab));
  const auto scalars = o.copy(std::vector<StepScalars>(1));
  const CrossEntropy loss{.x = o.matrix(rows, d),
                          .W = o.matrix(vocab, d),
                          .targets = targets,
                          .weights = o.filled(rows, 1),
                          .logits = o.matrix(std::min<int64_t>(rows, 2048), vocab),
                          .scalars = scalars,
                          .nll = o.vector(rows),
                          .dx = o.matrix(rows, d),
                          .dW = o.matrix(vocab, d)};
  b.run("cross_entropy", rows, d, [&] { cross_entropy(b.ctx, loss); });
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
  OperationCost cost(int products, int matrices, int64_t element_bytes) const {
    return {.flops = static_cast<double>(products * rows * width() * (length + 1)),
            .bytes = static_cast<double>(matrices * rows * width() * element_bytes)};
  }
};

void bench_attention(Bench& b, const AttentionSizes& a) {
  Operands o(b.ctx);
  const auto cu_seqlens = o.copy(a.begins());
  const auto make = [&] { return o.heads(a.rows, a.heads, a.head_dim); };
  const auto q = make(), k = make(), v = make(), out = make(), d_out = make(), dq = make(), dk = make(), dv = make();
  const auto lse = o.matrix(a.heads, a.rows), delta = o.matrix(a.heads, a.rows);
  b.run(
      a.name(""), a.rows, a.width(),
      [&] { attention(b.ctx, q, {.keys = k, .values = v}, cu_seqlens, a.scale(), 0, out, lse); }, a.cost(2, 4, kFloat));
  b.run(
      a.name("_backward"), a.rows, a.width(),
      [&] { attention_backward(b.ctx, d_out, q, k, v, out, lse, cu_seqlens, a.scale(), 0, dq, dk, dv, delta); },
      a.cost(5, 8, kFloat));
}

/// By tensor cores; of a GPU alone.
void bench_attention_bf16(Bench& b, const AttentionSizes& a) {
  Operands o(b.ctx);
  const auto cu_seqlens = o.copy(a.begins());
  const auto make = [&] {
    const std::vector<Bf16> values(a.rows * a.width(), Bf16{0x3e80});  // 0.25
    return CudaHeadRows<Bf16>{o.copy(values).data(), a.width(), a.head_dim};
  };
  const auto read = [](const CudaHeadRows<Bf16>& rows) {
    return CudaHeadRows<const Bf16>{rows.data, rows.row_stride, rows.head_stride};
  };
  const auto q = make(), k = make(), v = make(), out = make(), d_out = make(), dq = make(), dk = make(), dv = make();
  const auto lse = o.matrix(a.heads, a.rows), delta = o.matrix(a.heads, a.rows);
  const CudaAttentionSizes sizes{.sequences = a.rows / a.length,
                                 .tokens = a.rows,
                                 .heads = a.heads,
                                 .kv_heads = a.heads,
                                 .head_dim = a.head_dim,
                                 .cu_seqlens = cu_seqlens.data(),
                                 .scale = a.scale(),
                                 .window = 0};
  const CudaAttentionForward<Bf16> forward{
      .sizes = sizes, .q = read(q), .k = read(k), .v = read(v), .out = out, .lse = lse.data(), .pages = {}};
  const CudaAttentionBackward<Bf16> backward{.sizes = sizes,
                                             .d_out = read(d_out),
                                             .q = read(q),
                                             .k = read(k),
                                             .v = read(v),
                                             .out = read(out),
                                             .dq = dq,
                                             .dk = dk,
                                             .dv = dv,
                                             .lse = lse.data(),
                                             .delta = delta.data()};
  b.run(
      a.name("_bf16"), a.rows, a.width(), [&] { cuda::attention_forward_bf16(b.ctx.queue(), forward); },
      a.cost(2, 4, sizeof(Bf16)));
  b.run(
      a.name("_bf16_backward"), a.rows, a.width(), [&] { cuda::attention_backward_bf16(b.ctx.queue(), backward); },
      a.cost(5, 8, sizeof(Bf16)));
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
  part("copy", [&] { bench_copy(b, 8 * rows, d); });
  part("product", [&] { bench_product(b, product, product); });
  part("product", [&] { bench_product(b, rows, d); });
  for (int64_t width : {d, 4 * d}) part("seam", [&] { bench_seam(b, rows, width); });
  part("rms_norm", [&] { bench_norms(b, rows, d); });
  part("swiglu", [&] { bench_swiglu(b, rows, 3 * d); });
  const AttentionSizes attentions[] = {{rows, std::max<int64_t>(1, d / 64), 64, std::min<int64_t>(1024, length)},
                                       {rows, std::max<int64_t>(1, d / 128), 128, length}};
  for (const AttentionSizes& sizes : attentions) {
    part("attention", [&] { bench_attention(b, sizes); });
    if (ctx.device() == Device::cuda) part("attention", [&] { bench_attention_bf16(b, sizes); });
  }
  part("cross_entropy", [&] { bench_cross_entropy(b, rows, d, vocab); });
  if (b.wants("adamw") || b.wants("grad_norm")) bench_optimiser(b, 16 * rows * d);
  part("rope", [&] { bench_rope(b, rows, d, length); });
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
