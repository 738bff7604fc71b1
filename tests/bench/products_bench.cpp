// The three products of a linear layer, by kernels/matmul: JSON lines on stdout, one a product and shape. Dense
// row-major buffers; caches are warm as far as the buffers fit.
//   products_bench [threads [rows [in out]...]]      without shapes: the layers of decoders of width 64 to 1024

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "bench/timing.h"
#include "keel/kernels/matmul/matmul.h"

namespace {

using namespace keel;

void report(const Context& ctx, const char* product, int64_t rows, int64_t in, int64_t out, const bench::Timing& t) {
  const double flop = 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  std::printf(
      "{\"benchmark\":\"products\",\"product\":\"%s\",\"threads\":%d,\"rows\":%ld,\"in\":%ld,\"out\":%ld,"
      "\"repeats\":%ld,\"median_s\":%.7f,\"fastest_s\":%.7f,\"gflops\":%.1f,\"fastest_gflops\":%.1f}\n",
      product, ctx.threads(), rows, in, out, t.repeats, t.median, t.fastest, flop / t.median * 1e-9,
      flop / t.fastest * 1e-9);
  std::fflush(stdout);
}

void run(Context& ctx, int64_t rows, int64_t in, int64_t out) {
  std::vector<float> x = bench::values(rows * in), w = bench::values(out * in, 2), y = bench::values(rows * out, 3);
  std::vector<float> result_x(rows * in), result_w(out * in), result_y(rows * out);
  const View<const float, 2> X(x.data(), {rows, in}), W(w.data(), {out, in}), Y(y.data(), {rows, out});
  const View<float, 2> dX(result_x.data(), {rows, in}), dW(result_w.data(), {out, in}),
      XW(result_y.data(), {rows, out});
  const auto t = bench::measure(
      0.5, [&] { matmul(ctx, X, W, XW, Transpose::b); }, [&] { matmul(ctx, Y, W, dX); },
      [&] { matmul(ctx, Y, X, dW, Transpose::a); }, [&] { matmul(ctx, Y, X, dW, Transpose::a, true); });
  report(ctx, "forward", rows, in, out, t[0]);
  report(ctx, "input gradient", rows, in, out, t[1]);
  report(ctx, "weight gradient", rows, in, out, t[2]);
  report(ctx, "weight gradient, accumulated", rows, in, out, t[3]);
}

/// Fused query, key, value with grouped heads; output; fused gate and up; down.
std::vector<std::pair<int64_t, int64_t>> decoder_layers() {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int64_t d : {64, 128, 256, 512, 1024}) {
    for (const auto& shape : {std::pair{d, 2 * d}, {d, d}, {d, 6 * d}, {3 * d, d}}) shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int64_t rows = argc > 2 ? std::atoll(argv[2]) : 2048;
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int i = 3; i + 1 < argc; i += 2) shapes.emplace_back(std::atoll(argv[i]), std::atoll(argv[i + 1]));
  if (threads < 1 || rows < 1) return std::fprintf(stderr, "products_bench: error: expected threads and rows\n"), 2;
  if (shapes.empty()) shapes = decoder_layers();
  Context ctx(threads);
  for (const auto& [in, out] : shapes) run(ctx, rows, in, out);
}
