// Products of a few rows by weights of each type, beside how fast this machine reads memory: JSON lines on stdout. The
// weights are as many matrices as do not fit the caches, each read once a round; both take turns.
//   linear_bench [threads [megabytes of fp32 weights [in out]...]]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/timing.h"
#include "keel/base/process.h"
#include "keel/kernels/linear/linear.h"
#include "keel/kernels/machine_rate/machine_rate.h"
#include "keel/model/arena.h"

namespace {

using namespace keel;

constexpr std::pair<WeightType, const char*> kTypes[] = {
    {WeightType::fp32, "fp32"}, {WeightType::bf16, "bf16"}, {WeightType::q8_0, "q8_0"}};

void run(Context& ctx, int64_t megabytes, int64_t in, int64_t out, double read_rate) {
  const int64_t matrices = std::max<int64_t>(1, (megabytes << 20) / (4 * in * out));
  for (const auto& [type, name] : kTypes) {
    WeightMatrix one(type, out, in, nullptr);
    ArenaPlan plan;
    const auto value_region = plan.add<char>(MemoryKind::weights, matrices * out * in * one.value_bytes());
    const auto scale_region = plan.add<uint16_t>(MemoryKind::weights, matrices * out * scales_of_row(in));
    const Arena arena(plan);  // in large pages, as weights are
    char* values = arena.at(value_region);
    uint16_t* scales = arena.at(scale_region);
    std::memset(values, 0x3C, value_region.count);  // 0.0115, 0.0115, 60
    std::fill_n(scales, scale_region.count, uint16_t{0x3C00});
    for (int64_t rows : {1, 2, 4, 8, 12, 13, 32, 512}) {
      const std::vector<float> x = bench::values(rows * in);
      std::vector<float> y(rows * out);
      const auto t = bench::measure(0.2, [&] {
        for (int64_t m = 0; m < matrices; ++m) {
          one.values = values + m * out * in * one.value_bytes();
          if (type == WeightType::q8_0) one.scales = scales + m * out * scales_of_row(in);
          linear(ctx, {x.data(), {rows, in}}, one, {y.data(), {rows, out}});
        }
      })[0];
      const double bytes = static_cast<double>(matrices * one.bytes());
      const double flop = 2.0 * static_cast<double>(rows * in * out * matrices);
      std::printf(
          "{\"benchmark\":\"linear\",\"weights\":\"%s\",\"threads\":%d,\"rows\":%ld,\"in\":%ld,\"out\":%ld,"
          "\"repeats\":%ld,\"median_s\":%.7f,\"fastest_s\":%.7f,\"gigabytes_per_s\":%.2f,"
          "\"share_of_reading\":%.3f,\"gflops\":%.1f}\n",
          name, ctx.threads(), rows, in, out, t.repeats, t.median / static_cast<double>(matrices),
          t.fastest / static_cast<double>(matrices), bytes / t.median * 1e-9, bytes / t.median / read_rate,
          flop / t.median * 1e-9);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : available_cores();
  const int64_t megabytes = argc > 2 ? std::atoll(argv[2]) : 400;
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int i = 3; i + 1 < argc; i += 2) shapes.emplace_back(std::atoll(argv[i]), std::atoll(argv[i + 1]));
  if (threads < 1 || megabytes < 1) return std::fprintf(stderr, "linear_bench: error: expected threads and size\n"), 2;
  if (shapes.empty()) shapes = {{768, 2304}, {768, 768}, {768, 4096}, {2048, 768}, {768, 32000}};
  Context ctx(threads);
  const double read_rate = measure_reading(ctx.isa(), threads, megabytes << 20, 1);
  std::printf("{\"benchmark\":\"reading\",\"threads\":%d,\"gigabytes_per_s\":%.2f}\n", threads, read_rate * 1e-9);
  for (const auto& [in, out] : shapes) run(ctx, megabytes, in, out, read_rate);
}
