// The memory-bound operations against a triad (x = y + s z) over as many bytes, measured next to each: JSON lines on
// stdout, one an operation and shape. Bytes count every operand read or written once. Caches are warm: what fits stays
// in them, for the triad too.
//   elementwise_bench [threads]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "keel/base/median.h"
#include "keel/kernels/adamw/adamw.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/embedding/embedding.h"
#include "keel/kernels/grad_norm/grad_norm.h"
#include "keel/kernels/rms_norm/rms_norm.h"
#include "keel/kernels/rope/rope.h"
#include "keel/kernels/seam/seam.h"
#include "keel/kernels/swiglu/swiglu.h"

namespace {

using namespace keel;

struct Timing {
  double median, fastest;
};

Timing measure(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  work();
  std::vector<double> seconds;
  const auto start = Clock::now();
  while (seconds.size() < 9 || (Clock::now() - start < std::chrono::milliseconds(250) && seconds.size() < 1000)) {
    const auto begin = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return {median(seconds), *std::min_element(seconds.begin(), seconds.end())};
}

/// Memory for operands, one after the other on cache lines, of pseudo-random values in [-1, 1).
class Pool {
 public:
  explicit Pool(int64_t capacity) : memory_(capacity + kLine) {
    uint32_t state = 12345;
    for (float& x : memory_) {
      state = state * 1664525U + 1013904223U;
      x = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
    }
  }
  void clear() { used_ = 0; }
  float* take(int64_t n) {
    float* base =
        memory_.data() + (kLine - reinterpret_cast<uintptr_t>(memory_.data()) / sizeof(float) % kLine) % kLine;
    float* part = base + used_;
    used_ += (n + kLine - 1) / kLine * kLine;
    if (used_ + kLine > static_cast<int64_t>(memory_.size())) std::abort();
    return part;
  }
  View<float, 2> matrix(int64_t rows, int64_t d) { return {take(rows * d), {rows, d}}; }
  View<float, 1> vector(int64_t n) { return {take(n), {n}}; }

 private:
  static constexpr int64_t kLine = 16;
  std::vector<float> memory_;
  int64_t used_ = 0;
};

class Bench {
 public:
  explicit Bench(int threads) : ctx(threads), pool(int64_t{1} << 26) {}

  /// Runs work, which moves `bytes`, and prints its line.
  void run(const std::string& op, int64_t rows, int64_t d, int64_t bytes, const std::function<void()>& work) {
    const Timing t = measure(work), triad_t = triad(bytes);
    const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; };
    std::printf(
        "{\"benchmark\":\"elementwise\",\"op\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"rows\":%ld,\"d\":%ld,"
        "\"seconds\":%.3e,\"fastest_s\":%.3e,\"gb_per_s\":%.2f,\"triad_gb_per_s\":%.2f,\"fraction_of_triad\":%.3f,"
        "\"fastest_fraction_of_triad\":%.3f}\n",
        op.c_str(), isa_name(ctx.isa()), ctx.threads(), rows, d, t.median, t.fastest, rate(t.median),
        rate(triad_t.median), triad_t.median / t.median, triad_t.fastest / t.fastest);
    std::fflush(stdout);
    pool.clear();
  }

  Context ctx;
  Pool pool;

 private:
  Timing triad(int64_t bytes) {
    pool.clear();
    const int64_t n = bytes / 12;
    float *x = pool.take(n), *y = pool.take(n), *z = pool.take(n);
    return measure([&] {
      for_ranges(ctx.team(), n, n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) x[i] = y[i] + 0.5F * z[i];
      });
    });
  }
};

constexpr int64_t kFloat = sizeof(float);

void bench_norm(Bench& b, int64_t rows, int64_t d) {
  {
    const auto x = b.pool.matrix(rows, d), y = b.pool.matrix(rows, d);
    const auto w = b.pool.vector(d), s = b.pool.vector(rows);
    b.run("rms_norm", rows, d, 2 * rows * d * kFloat, [&] { rms_norm(b.ctx, x, w, 1e-5F, y, s); });
  }
  const auto x = b.pool.matrix(rows, d), dy = b.pool.matrix(rows, d), dx = b.pool.matrix(rows, d);
  const auto partial = b.pool.matrix(chunk_count(rows), d);
  const auto w = b.pool.vector(d), dw = b.pool.vector(d), s = b.pool.vector(rows);
  b.run("rms_norm_backward", rows, d, 3 * rows * d * kFloat,
        [&] { rms_norm_backward(b.ctx, dy, x, w, s, dx, false, dw, partial); });
}

void bench_seam_forward(Bench& b, int64_t rows, int64_t d, bool outer, bool inner) {
  const auto scale = b.pool.vector(1);
  scale(0) = 1;
  SeamForward seam{.x = b.pool.matrix(rows, d), .F = b.pool.matrix(rows, d), .a = scale, .b = scale};
  seam.y = b.pool.matrix(rows, d);
  if (outer) {
    seam.outer_gain = b.pool.vector(d);
    seam.outer_r = b.pool.vector(rows);
  }
  if (inner) {
    seam.inner_gain = b.pool.vector(d);
    seam.inner_r = b.pool.vector(rows);
    seam.u = b.pool.matrix(rows, d);
  }
  b.run(std::string("seam_forward") + (outer ? "_outer" : "") + (inner ? "_inner" : ""), rows, d,
        (inner ? 4 : 3) * rows * d * kFloat, [&] { seam_forward(b.ctx, seam); });
}

/// As in training: dx in the place of Ds, dF in that of Du.
void bench_seam_backward(Bench& b, int64_t rows, int64_t d, bool outer, bool inner) {
  const auto scale = b.pool.vector(1), branch_scale = b.pool.vector(1);
  scale(0) = 1;
  branch_scale(0) = 0.5F;
  SeamBackward seam{.a = scale, .b = branch_scale};
  int64_t matrices = 4;
  if (outer) {
    seam.x = b.pool.matrix(rows, d);
    seam.F = b.pool.matrix(rows, d);
    seam.outer_gain = b.pool.vector(d);
    seam.d_outer_gain = b.pool.vector(d);
    seam.outer_r = b.pool.vector(rows);
    matrices += 2;
  }
  if (inner) {
    seam.inner_gain = b.pool.vector(d);
    seam.d_inner_gain = b.pool.vector(d);
    seam.inner_r = b.pool.vector(rows);
    if (!outer) {
      seam.y = b.pool.matrix(rows, d);
      matrices += 1;
    }
  }
  const auto state = b.pool.matrix(rows, d), branch = b.pool.matrix(rows, d);
  seam.Ds = seam.dx = state;
  seam.Du = seam.dF = branch;
  seam.partial = b.pool.matrix(chunk_count(rows), 2 * d + 2);
  b.run(std::string("seam_backward") + (outer ? "_outer" : "") + (inner ? "_inner" : ""), rows, d,
        matrices * rows * d * kFloat, [&] { seam_backward(b.ctx, seam); });
}

void bench_seam(Bench& b, int64_t rows, int64_t d) {
  for (bool outer : {true, false}) {
    for (bool inner : {true, false}) {
      bench_seam_forward(b, rows, d, outer, inner);
      bench_seam_backward(b, rows, d, outer, inner);
    }
  }
}

/// q and k heads of a [rows, q k v] buffer with half as many kv heads as heads.
void bench_rope(Bench& b, int64_t rows, int64_t d, int64_t head_dim) {
  const int64_t heads = d / head_dim + d / head_dim / 2, length = 256;
  const auto cos = b.pool.matrix(length, head_dim / 2), sin = b.pool.matrix(length, head_dim / 2);
  const std::vector<double> frequencies(head_dim / 2, 1e-3);
  rope_table(b.ctx, {frequencies.data(), {head_dim / 2}}, cos, sin);
  std::vector<int32_t> positions;
  for (int64_t n = 0; n < rows; ++n) positions.push_back(static_cast<int32_t>(n % length));
  const View<float, 3> x(b.pool.take(rows * 2 * d), {rows, heads, head_dim}, {2 * d, head_dim, 1});
  b.run("rope", rows, d, 2 * rows * heads * head_dim * kFloat, [&] {
    rope(b.ctx, {positions.data(), {rows}}, cos, sin, x);
  });
}

/// Gate and up side by side, gradients in their place.
void bench_swiglu(Bench& b, int64_t rows, int64_t d) {
  {
    const auto gate_up = b.pool.matrix(rows, 2 * d), h = b.pool.matrix(rows, d);
    const auto gate = gate_up.columns(0, d), up = gate_up.columns(d, 2 * d);
    b.run("swiglu", rows, d, 3 * rows * d * kFloat, [&] { swiglu(b.ctx, gate, up, h); });
  }
  const auto gate_up = b.pool.matrix(rows, 2 * d), dh = b.pool.matrix(rows, d), out = b.pool.matrix(rows, 2 * d);
  const auto gate = gate_up.columns(0, d), up = gate_up.columns(d, 2 * d);
  b.run("swiglu_backward", rows, d, 5 * rows * d * kFloat,
        [&] { swiglu_backward(b.ctx, dh, gate, up, out.columns(0, d), out.columns(d, 2 * d), {}); });
}

void bench_embedding(Bench& b, int64_t rows, int64_t d) {
  constexpr int64_t kVocab = 8192;
  std::vector<int32_t> tokens;
  uint32_t state = 1;
  for (int64_t n = 0; n < rows; ++n) {
    state = state * 1664525U + 1013904223U;
    // One in eight tokens is the most frequent one, as in text.
    tokens.push_back(state >> 29 == 0 ? 7 : static_cast<int32_t>((state >> 8) % kVocab));
  }
  const View<const int32_t, 1> ids(tokens.data(), {rows});
  {
    const auto table = b.pool.matrix(kVocab, d), y = b.pool.matrix(rows, d);
    b.run("embedding", rows, d, 2 * rows * d * kFloat, [&] { embedding(b.ctx, ids, table, y); });
  }
  const auto table = b.pool.matrix(kVocab, d), dy = b.pool.matrix(rows, d);
  b.run("embedding_backward", rows, d, 3 * rows * d * kFloat, [&] { embedding_backward(b.ctx, ids, dy, table); });
}

void bench_optimiser(Bench& b, int64_t rows, int64_t d) {
  const int64_t n = rows * d;
  StepScalars s{};
  s.weight_sum = s.clip = s.bias_correction1 = s.bias_correction2 = 1;
  for (double& lr : s.learning_rate) lr = 1e-6;
  {
    const auto g = b.pool.vector(n);
    std::vector<double> partial(chunk_count(n, kGradNormChunk));
    b.run("grad_norm", rows, d, n * kFloat, [&] {
      grad_norm(b.ctx, g, {&s, {1}}, {partial.data(), {std::ssize(partial)}});
    });
  }
  s.non_finite = 0;
  s.grad_scale = 1;
  const auto g = b.pool.vector(n), w = b.pool.vector(n), m = b.pool.vector(n), v = b.pool.vector(n);
  for (int64_t i = 0; i < n; ++i) v(i) = 0.5F;
  const std::vector<AdamwSegment> segments = {{.offset = 0, .size = n, .weight_decay = 0.1F}};
  b.run("adamw", rows, d, 7 * n * kFloat, [&] { adamw(b.ctx, segments, 0.9, 0.95, {&s, {1}}, g, w, m, v); });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (threads < 1) return std::fprintf(stderr, "elementwise_bench: error: expected a number of threads\n"), 2;
  Bench b(threads);
  constexpr int64_t kRows = 2048;
  for (int64_t d : {64, 256, 1024}) {
    bench_norm(b, kRows, d);
    bench_seam(b, kRows, d);
    bench_rope(b, kRows, d, 32);
    bench_swiglu(b, kRows, 3 * d);
    bench_embedding(b, kRows, d);
    bench_optimiser(b, kRows, 4 * d);
  }
}
