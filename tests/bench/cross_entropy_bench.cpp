// The fused output head and cross-entropy against its three matrix products alone: JSON lines on stdout, one a chunk
// size. `products_s` are the products in the same chunks, `whole_products_s` each product in one piece, with all logits
// in memory. Caches are warm as far as the buffers fit.
//   cross_entropy_bench [threads [rows width vocabulary]]

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/timing.h"
#include "keel/kernels/cross_entropy/cross_entropy.h"
#include "keel/kernels/matmul/matmul.h"

namespace {

using namespace keel;

struct Buffers {
  Buffers(int64_t N_, int64_t d_, int64_t V_)
      : N(N_),
        d(d_),
        V(V_),
        x(bench::values(N * d)),
        W(bench::values(V * d, 2)),
        dx(N * d),
        dW(V * d),
        logits(N * V),
        weights(N, 1),
        targets(N) {
    for (int64_t n = 0; n < N; ++n) targets[n] = static_cast<int32_t>(n * 7919 % V);
  }
  int64_t N, d, V;
  std::vector<float> x, W, dx, dW, logits, weights;
  std::vector<int32_t> targets;
};

void products(Context& ctx, Buffers& b, int64_t chunk) {
  const View<const float, 2> W(b.W.data(), {b.V, b.d});
  for (int64_t n = 0; n < b.N; n += chunk) {
    const int64_t rows = std::min(chunk, b.N - n);
    const View<float, 2> logits(b.logits.data(), {rows, b.V});
    const View<const float, 2> x(b.x.data() + n * b.d, {rows, b.d});
    matmul(ctx, x, W, logits, Transpose::b);
    matmul(ctx, logits, x, {b.dW.data(), {b.V, b.d}}, Transpose::a, true);
    matmul(ctx, logits, W, {b.dx.data() + n * b.d, {rows, b.d}});
  }
}

void fused(Context& ctx, Buffers& b, int64_t chunk, StepScalars& scalars) {
  cross_entropy(ctx, {.x = {b.x.data(), {b.N, b.d}},
                      .W = {b.W.data(), {b.V, b.d}},
                      .targets = {b.targets.data(), {b.N}},
                      .weights = {b.weights.data(), {b.N}},
                      .logits = {b.logits.data(), {chunk, b.V}},
                      .scalars = {&scalars, {1}},
                      .nll = {},
                      .dx = {b.dx.data(), {b.N, b.d}},
                      .dW = {b.dW.data(), {b.V, b.d}}});
}

void run(Context& ctx, Buffers& b, int64_t chunk) {
  StepScalars scalars{};
  const auto t = bench::measure(
      2, [&] { fused(ctx, b, chunk, scalars); }, [&] { products(ctx, b, chunk); }, [&] { products(ctx, b, b.N); });
  std::printf(
      "{\"benchmark\":\"cross_entropy\",\"isa\":\"%s\",\"threads\":%d,\"rows\":%ld,\"width\":%ld,\"vocabulary\":%ld,"
      "\"chunk\":%ld,\"logits_bytes\":%ld,\"repeats\":%ld,\"median_s\":%.6f,\"fastest_s\":%.6f,\"products_s\":%.6f,"
      "\"whole_products_s\":%.6f,\"ratio\":%.3f,\"ratio_to_whole\":%.3f}\n",
      isa_name(ctx.isa()), ctx.threads(), b.N, b.d, b.V, chunk, chunk * b.V * static_cast<int64_t>(sizeof(float)),
      t[0].repeats, t[0].median, t[0].fastest, t[1].median, t[2].median, t[0].median / t[1].median,
      t[0].median / t[2].median);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t value) { return argc > i ? std::atoll(argv[i]) : value; };
  const int64_t threads = argument(1, 2), rows = argument(2, 2048), width = argument(3, 256), V = argument(4, 32000);
  if (threads < 1 || rows < 1 || width < 1 || V < 1) {
    return std::fprintf(stderr, "cross_entropy_bench: error: expected threads, rows, width and vocabulary\n"), 2;
  }
  Context ctx(static_cast<int>(threads));
  Buffers b(rows, width, V);
  for (int64_t chunk : {32, 64, 128, 256, 512, 1024, 2048}) {
    if (chunk <= rows) run(ctx, b, chunk);
  }
}
