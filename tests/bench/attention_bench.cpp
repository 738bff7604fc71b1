// Attention against matrix products: JSON lines on stdout, one a shape. Floating-point operations are counted for the
// pairs that causal attention needs (forward two products, backward five); product_gflops is oneDNN's rate for a
// [2048, 256] x [256, 768] product in this process, measured next to each shape. Caches are warm.
//   attention_bench [threads]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "keel/kernels/attention/attention.h"
#include "keel/kernels/matmul/matmul.h"

namespace {

using namespace keel;

struct Timing {
  double median, fastest;
};

template <class Work>
Timing measure(Work work) {
  using Clock = std::chrono::steady_clock;
  work();
  std::vector<double> seconds;
  const auto start = Clock::now();
  while (seconds.size() < 7 || (Clock::now() - start < std::chrono::milliseconds(700) && seconds.size() < 500)) {
    const auto begin = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front()};
}

std::vector<float> values(int64_t n) {
  std::vector<float> v(n);
  uint32_t state = 12345;
  for (float& x : v) {
    state = state * 1664525U + 1013904223U;
    x = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
  }
  return v;
}

Timing product(Context& context) {
  constexpr int64_t m = 2048, k = 256, n = 768;
  std::vector<float> a = values(m * k), b = values(n * k), c(m * n);
  return measure([&] {
    matmul(context, View<const float, 2>(a.data(), {m, k}), View<const float, 2>(b.data(), {n, k}),
           View<float, 2>(c.data(), {m, n}), Transpose::b);
  });
}
constexpr double kProductFlop = 2.0 * 2048 * 256 * 768;

struct Shape {
  int64_t sequences, length, heads, kv_heads, head_dim, window;
};

void run(Context& context, const Shape& s) {
  const int64_t tokens = s.sequences * s.length;
  const int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim;  // q, k, v side by side, as in training
  std::vector<float> qkv = values(tokens * width), d_qkv(tokens * width);
  std::vector<float> out(tokens * s.heads * s.head_dim), d_out = values(tokens * s.heads * s.head_dim);
  std::vector<float> lse(s.heads * tokens), delta(s.heads * tokens);
  std::vector<int32_t> cu_seqlens;
  for (int64_t i = 0; i <= s.sequences; ++i) cu_seqlens.push_back(static_cast<int32_t>(i * s.length));
  const auto part = [&](std::vector<float>& x, int64_t head, int64_t heads) {
    return View<float, 3>(x.data() + head * s.head_dim, {tokens, heads, s.head_dim}, {width, s.head_dim, 1});
  };
  const auto q = part(qkv, 0, s.heads), k = part(qkv, s.heads, s.kv_heads),
             v = part(qkv, s.heads + s.kv_heads, s.kv_heads);
  const auto dq = part(d_qkv, 0, s.heads), dk = part(d_qkv, s.heads, s.kv_heads),
             dv = part(d_qkv, s.heads + s.kv_heads, s.kv_heads);
  const View<float, 3> o(out.data(), {tokens, s.heads, s.head_dim}), d_o(d_out.data(), {tokens, s.heads, s.head_dim});
  const View<float, 2> l(lse.data(), {s.heads, tokens}), d(delta.data(), {s.heads, tokens});
  const View<const int32_t, 1> cu(cu_seqlens.data(), {s.sequences + 1});

  const double raw = kProductFlop / product(context).median;
  const Timing forward = measure([&] { attention(context, q, {.keys = k, .values = v}, cu, 0.2F, s.window, o, l); });
  const Timing backward =
      measure([&] { attention_backward(context, d_o, q, k, v, o, l, cu, 0.2F, s.window, dq, dk, dv, d); });

  const double window = static_cast<double>(s.window > 0 ? std::min(s.window, s.length) : s.length);
  const double pairs = (window * (window + 1) / 2 + (static_cast<double>(s.length) - window) * window) *
                       static_cast<double>(s.sequences * s.heads);
  const double flop = 4.0 * pairs * static_cast<double>(s.head_dim);
  std::printf(
      "{\"benchmark\":\"attention\",\"isa\":\"%s\",\"threads\":%d,\"sequences\":%ld,\"length\":%ld,\"heads\":%ld,"
      "\"kv_heads\":%ld,\"head_dim\":%ld,\"window\":%ld,\"forward_s\":%.6f,\"forward_fastest_s\":%.6f,"
      "\"backward_s\":%.6f,\"backward_fastest_s\":%.6f,\"forward_gflops\":%.1f,\"backward_gflops\":%.1f,"
      "\"product_gflops\":%.1f,\"forward_fraction\":%.3f,\"backward_fraction\":%.3f}\n",
      isa_name(context.isa()), context.threads(), s.sequences, s.length, s.heads, s.kv_heads, s.head_dim, s.window,
      forward.median, forward.fastest, backward.median, backward.fastest, flop / forward.median * 1e-9,
      2.5 * flop / backward.median * 1e-9, raw * 1e-9, flop / forward.median / raw, 2.5 * flop / backward.median / raw);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (threads < 1) return std::fprintf(stderr, "attention_bench: error: expected a number of threads\n"), 2;
  Context context(threads);
  constexpr Shape kShapes[] = {
      {8, 256, 8, 4, 32, 0},  {2, 1024, 8, 4, 32, 0}, {1, 4096, 8, 4, 32, 0},   {8, 256, 8, 4, 64, 0},
      {2, 1024, 8, 8, 64, 0}, {1, 4096, 8, 2, 64, 0}, {2, 1024, 8, 2, 128, 0},  {1, 4096, 4, 4, 128, 0},
      {64, 32, 8, 4, 32, 0},  {8, 256, 8, 4, 40, 0},  {1, 4096, 8, 4, 64, 512},
  };
  for (const Shape& s : kShapes) run(context, s);
}
