// Causal attention against a matrix product: JSON lines on stdout, one a shape. Floating-point operations are counted
// for the pairs of tokens that attention needs, two products forward and five backward; the fractions are of the rate
// of a [2048, 256] x [256, 768] product that takes turns with them. q, k and v lie side by side, as in training; caches
// are warm as far as the buffers fit.
//   attention_bench [threads [sequences length heads kv_heads head_dim window]...]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/timing.h"
#include "keel/kernels/attention/attention.h"
#include "keel/kernels/matmul/matmul.h"

namespace {

using namespace keel;

struct Shape {
  int64_t sequences, length, heads, kv_heads, head_dim, window;

  int64_t tokens() const { return sequences * length; }
  double forward_flop() const {
    const auto reach = static_cast<double>(window > 0 ? std::min(window, length) : length);
    const double pairs = reach * (reach + 1) / 2 + (static_cast<double>(length) - reach) * reach;
    return 4.0 * pairs * static_cast<double>(sequences * heads * head_dim);
  }
};

void report(const Context& ctx, const Shape& s, const bench::Timing& forward, const bench::Timing& backward,
            double product_rate) {
  const double forward_rate = s.forward_flop() / forward.median,
               backward_rate = 2.5 * s.forward_flop() / backward.median;
  std::printf(
      "{\"benchmark\":\"attention\",\"isa\":\"%s\",\"threads\":%d,\"sequences\":%ld,\"length\":%ld,\"heads\":%ld,"
      "\"kv_heads\":%ld,\"head_dim\":%ld,\"window\":%ld,\"repeats\":%ld,\"forward_median_s\":%.6f,"
      "\"forward_fastest_s\":%.6f,\"backward_median_s\":%.6f,\"backward_fastest_s\":%.6f,\"forward_gflops\":%.1f,"
      "\"backward_gflops\":%.1f,\"product_gflops\":%.1f,\"forward_fraction\":%.3f,\"backward_fraction\":%.3f}\n",
      isa_name(ctx.isa()), ctx.threads(), s.sequences, s.length, s.heads, s.kv_heads, s.head_dim, s.window,
      forward.repeats, forward.median, forward.fastest, backward.median, backward.fastest, forward_rate * 1e-9,
      backward_rate * 1e-9, product_rate * 1e-9, forward_rate / product_rate, backward_rate / product_rate);
  std::fflush(stdout);
}

void run(Context& ctx, const Shape& s) {
  const int64_t N = s.tokens(), H = s.heads, K = s.kv_heads, D = s.head_dim;
  const int64_t width = (H + 2 * K) * D;
  std::vector<float> qkv = bench::values(N * width), d_qkv(N * width), out(N * H * D);
  const std::vector<float> d_out = bench::values(N * H * D, 2);
  std::vector<float> lse(H * N), delta(H * N);
  std::vector<int32_t> cu_seqlens;
  for (int64_t i = 0; i <= s.sequences; ++i) cu_seqlens.push_back(static_cast<int32_t>(i * s.length));
  const auto part = [&](std::vector<float>& x, int64_t first_head, int64_t heads) {
    return View<float, 3>(x.data() + first_head * D, {N, heads, D}, {width, D, 1});
  };
  const auto q = part(qkv, 0, H), k = part(qkv, H, K), v = part(qkv, H + K, K);
  const auto dq = part(d_qkv, 0, H), dk = part(d_qkv, H, K), dv = part(d_qkv, H + K, K);
  const View<float, 3> o(out.data(), {N, H, D});
  const View<const float, 3> d_o(d_out.data(), {N, H, D});
  const View<float, 2> l(lse.data(), {H, N}), d(delta.data(), {H, N});
  const View<const int32_t, 1> cu(cu_seqlens.data(), {s.sequences + 1});
  constexpr float kScale = 0.2F;

  constexpr int64_t kRows = 2048, kIn = 256, kOut = 768;
  const std::vector<float> a = bench::values(kRows * kIn, 3), b = bench::values(kOut * kIn, 4);
  std::vector<float> c(kRows * kOut);
  const View<const float, 2> A(a.data(), {kRows, kIn}), B(b.data(), {kOut, kIn});
  const View<float, 2> C(c.data(), {kRows, kOut});
  const auto t = bench::measure(
      1.5, [&] { matmul(ctx, A, B, C, Transpose::b); },
      [&] { attention(ctx, q, {.keys = k, .values = v}, cu, kScale, s.window, o, l); },
      [&] { attention_backward(ctx, d_o, q, k, v, o, l, cu, kScale, s.window, dq, dk, dv, d); });
  report(ctx, s, t[1], t[2], 2.0 * kRows * kIn * kOut / t[0].median);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  std::vector<Shape> shapes;
  for (int i = 2; i + 5 < argc; i += 6) {
    int64_t n[6];
    for (int j = 0; j < 6; ++j) n[j] = std::atoll(argv[i + j]);
    shapes.push_back({n[0], n[1], n[2], n[3], n[4], n[5]});
  }
  if (threads < 1) return std::fprintf(stderr, "attention_bench: error: expected a number of threads\n"), 2;
  if (shapes.empty()) {
    shapes = {{8, 256, 8, 4, 32, 0},  {2, 1024, 8, 4, 32, 0}, {1, 4096, 8, 4, 32, 0},  {8, 256, 8, 4, 64, 0},
              {2, 1024, 8, 8, 64, 0}, {1, 4096, 8, 2, 64, 0}, {2, 1024, 8, 2, 128, 0}, {1, 4096, 4, 4, 128, 0},
              {64, 32, 8, 4, 32, 0},  {8, 256, 8, 4, 40, 0},  {1, 4096, 8, 4, 64, 512}};
  }
  Context ctx(threads);
  for (const Shape& s : shapes) run(ctx, s);
}
