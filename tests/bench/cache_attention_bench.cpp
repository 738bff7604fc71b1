// Attention of one token at a time over a paged cache of keys and values, beside reading as much memory, in turns: JSON
// lines. As many caches as a model has layers follow each other, so that none is in a cache of the processor.
//   cache_attention_bench [threads [layers length heads kv_heads head_dim]...]

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "bench/timing.h"
#include "keel/base/process.h"
#include "keel/kernels/attention/attention.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/machine_rate/machine_rate_cpu.h"
#include "keel/model/arena.h"

namespace {

using namespace keel;

struct Shape {
  int64_t layers, length, heads, kv_heads, head_dim;
};

void run(Context& ctx, const Shape& s) {
  constexpr int64_t kPage = 16;
  const int64_t pages = (s.length + kPage - 1) / kPage, rows = pages * kPage, width = s.kv_heads * s.head_dim;
  ArenaPlan plan;
  const auto cache = plan.add<float>(MemoryKind::activations, s.layers * 2 * rows * width);
  const Arena arena(plan);
  float* base = arena.at(cache);
  for (int64_t i = 0; i < cache.count; ++i) base[i] = static_cast<float>(i % 61) * 0.01F;
  const std::vector<float> q = bench::values(s.heads * s.head_dim);
  std::vector<float> out(q.size()), sums(ctx.threads());
  std::vector<int32_t> page_table(pages);
  std::iota(page_table.rbegin(), page_table.rend(), 0);
  const int32_t cu_seqlens[] = {0, 1}, length = static_cast<int32_t>(s.length);
  const auto part = [&](int64_t i) {
    return View<const float, 3>(base + i * rows * width, {rows, s.kv_heads, s.head_dim});
  };
  const auto times = bench::measure(
      0.5,
      [&] {
        for (int64_t layer = 0; layer < s.layers; ++layer) {
          attention(ctx, {q.data(), {1, s.heads, s.head_dim}},
                    {.keys = part(2 * layer),
                     .values = part(2 * layer + 1),
                     .page_table = {page_table.data(), {1, pages}},
                     .kv_lengths = {&length, {1}},
                     .page_size = kPage},
                    {cu_seqlens, {2}}, 0.125F, 0, {out.data(), {1, s.heads, s.head_dim}}, {});
        }
      },
      [&] {
        for_parts(ctx.team(), ctx.threads(), [&](int64_t i, int) {
          const int64_t begin = cache.count * i / ctx.threads(), end = cache.count * (i + 1) / ctx.threads();
          sums[i] += KEEL_CALL_ISA(ctx.isa(), read_floats(base + begin, end - begin));
        });
      });
  const double bytes = static_cast<double>(s.layers * 2 * s.length * width) * 4;
  std::printf(
      "{\"benchmark\":\"cache_attention\",\"threads\":%d,\"layers\":%ld,\"length\":%ld,\"heads\":%ld,\"kv_heads\":%ld,"
      "\"head_dim\":%ld,\"repeats\":%ld,\"microseconds_a_layer\":%.1f,\"gigabytes_per_s\":%.2f,\"reading\":%.2f,"
      "\"share_of_reading\":%.3f}\n",
      ctx.threads(), s.layers, s.length, s.heads, s.kv_heads, s.head_dim, times[0].repeats,
      times[0].fastest / static_cast<double>(s.layers) * 1e6, bytes / times[0].median * 1e-9,
      bytes / times[1].median * 1e-9, times[1].median / times[0].median);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : available_cores();
  std::vector<Shape> shapes;
  for (int i = 2; i + 4 < argc; i += 5) {
    const auto number = [&](int k) { return std::atoll(argv[i + k]); };
    shapes.push_back({number(0), number(1), number(2), number(3), number(4)});
  }
  if (shapes.empty())
    shapes = {{12, 1500, 12, 12, 64}, {12, 1500, 12, 3, 64}, {12, 4000, 12, 12, 64}, {12, 50, 12, 12, 64}};
  Context ctx(threads);
  for (const Shape& shape : shapes) run(ctx, shape);
}
