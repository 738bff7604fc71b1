#include "keel/train/throughput.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/median.h"
#include "keel/base/signals.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/memory/memory.h"
#include "keel/model/arena.h"
#include "keel/train/train_memory.h"

namespace keel {
namespace {

/// The median of the times of one product within `budget` seconds, of at least three runs after the first. Its matrices
/// lie in an arena and not on the heap, which would keep them as its own: a run has less memory to plan then.
double time_product(Context& ctx, const MatmulShape& shape, double budget) {
  const bool ta = transposes_a(shape.transpose), tb = transposes_b(shape.transpose);
  ArenaPlan plan;
  const auto a = plan.add<float>(MemoryKind::workspace, shape.m * shape.k);
  const auto b = plan.add<float>(MemoryKind::workspace, shape.k * shape.n);
  const auto c = plan.add<float>(MemoryKind::workspace, shape.m * shape.n);
  const Arena arena(ctx, plan);
  const std::vector<float> values(int64_t{1} << 14, 1e-3F);
  for (const auto& region : {a, b}) {
    for (int64_t at = 0; at < region.count; at += std::ssize(values)) {
      const int64_t count = std::min(std::ssize(values), region.count - at);
      copy_to_device(ctx, HostView<const float, 1>(values.data(), {count}),
                     View<float, 1>(arena.at(region) + at, {count}));
    }
  }
  const auto stored = [](int64_t rows, int64_t columns, bool transposed) {
    return transposed ? std::array{columns, rows} : std::array{rows, columns};
  };
  const View<float, 2> A(arena.at(a), stored(shape.m, shape.k, ta));
  const View<float, 2> B(arena.at(b), stored(shape.k, shape.n, tb));
  const View<float, 2> C(arena.at(c), {shape.m, shape.n});
  matmul(ctx, A, B, C, shape.transpose, shape.accumulate);
  ctx.synchronize();
  std::vector<double> times;
  const Stopwatch total;
  while (times.size() < 3 || total.seconds() < budget) {
    throw_if_stopped();
    const Stopwatch watch;
    matmul(ctx, A, B, C, shape.transpose, shape.accumulate);
    ctx.synchronize();
    times.push_back(watch.seconds());
  }
  return median(std::move(times));
}

}  // namespace

double measure_product_rate(Context& ctx, const TrainSettings& settings, double seconds) {
  const std::vector<TrainingProduct> products = training_products(settings, settings.micro_batch_sequences);
  double flops = 0, time = 0;
  for (const auto& [shape, of_rows, times] : products) {
    const double once =
        2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
    flops += static_cast<double>(times) * once;
    time += static_cast<double>(times) * time_product(ctx, shape, seconds / static_cast<double>(products.size()));
  }
  return flops / time;
}

}  // namespace keel
