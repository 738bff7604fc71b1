#include "keel/train/throughput.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/signals.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/train/train_memory.h"

namespace keel {
namespace {

/// A stored matrix for one side of a product.
View<float, 2> stored(std::vector<float>& buffer, int64_t rows, int64_t columns, bool transposed) {
  buffer.assign(static_cast<size_t>(rows * columns), 1e-3F);
  return transposed ? View<float, 2>(buffer.data(), {columns, rows}) : View<float, 2>(buffer.data(), {rows, columns});
}

/// Best of the times of one product within `budget` seconds, at least two runs after the first.
double time_product(Context& ctx, const MatmulShape& shape, double budget) {
  std::vector<float> a, b, c;
  const bool ta = shape.transpose == Transpose::a || shape.transpose == Transpose::both;
  const bool tb = shape.transpose == Transpose::b || shape.transpose == Transpose::both;
  const View<float, 2> A = stored(a, shape.m, shape.k, ta);
  const View<float, 2> B = stored(b, shape.k, shape.n, tb);
  const View<float, 2> C = stored(c, shape.m, shape.n, false);
  matmul(ctx, A, B, C, shape.transpose, shape.accumulate);
  double best = std::numeric_limits<double>::infinity();
  const Stopwatch total;
  for (int run = 0; run < 2 || total.seconds() < budget; ++run) {
    throw_if_stopped();
    const Stopwatch watch;
    matmul(ctx, A, B, C, shape.transpose, shape.accumulate);
    best = std::min(best, watch.seconds());
  }
  return best;
}

}  // namespace

double measure_product_rate(Context& ctx, const TrainSettings& settings, double seconds) {
  const std::vector<TrainingProduct> products = training_products(settings, settings.micro_batch_sequences);
  double flops = 0, time = 0;
  for (const auto& [shape, times] : products) {
    const double once =
        2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
    flops += static_cast<double>(times) * once;
    time += static_cast<double>(times) * time_product(ctx, shape, seconds / static_cast<double>(products.size()));
  }
  return flops / time;
}

}  // namespace keel
