#include "keel/train/throughput.h"

#include <algorithm>
#include <array>
#include <bit>
#include <random>
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

/// Elements of random fractions, between 2^-10 and 2^-9: equal ones would let a GPU, which they cost less power, run faster.
void fill(Context& ctx, const Arena& arena, const Region<void>& region) {
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(0x1p-10F), kFraction = (1U << 23) - 1;
  std::mt19937 random(1);
  std::vector<float> floats(int64_t{1} << 14);
  for (float& value : floats) value = std::bit_cast<float>(kLeast | (static_cast<uint32_t>(random()) & kFraction));
  std::vector<Bf16> rounded(int64_t{1} << 15);
  for (Bf16& value : rounded)
    value.bits = static_cast<uint16_t>((kLeast | (static_cast<uint32_t>(random()) & kFraction)) >> 16);
  const bool is_fp32 = region.type == ElementType::fp32;
  const char* from =
      is_fp32 ? reinterpret_cast<const char*>(floats.data()) : reinterpret_cast<const char*>(rounded.data());
  const int64_t bytes = region.count * element_bytes(region.type), most = std::ssize(floats) * int64_t{sizeof(float)};
  for (int64_t at = 0; at < bytes; at += most) {
    const int64_t count = std::min(most, bytes - at);
    copy_to_device(ctx, HostView<const char, 1>(from, {count}),
                   View<char, 1>(static_cast<char*>(arena.at(region)) + at, {count}));
  }
}

/// The median of the times of one product within `budget` seconds, of at least three runs after the first; on a GPU of so
/// many in a row that to enqueue them and to wait is little of it. Its matrices
/// lie in an arena and not on the heap, which would keep them as its own: a run has less memory to plan then.
double time_product(Context& ctx, const MatmulShape& shape, ElementType operands, ElementType result, double budget) {
  const bool ta = transposes_a(shape.transpose), tb = transposes_b(shape.transpose);
  ArenaPlan plan;
  const auto a = plan.add(MemoryKind::workspace, shape.m * shape.k, operands);
  const auto b = plan.add(MemoryKind::workspace, shape.k * shape.n, operands);
  const auto c = plan.add(MemoryKind::workspace, shape.m * shape.n, result);
  const Arena arena(ctx, plan);
  fill(ctx, arena, a);
  fill(ctx, arena, b);
  const auto stored = [](int64_t rows, int64_t columns, bool transposed) {
    return transposed ? std::array{columns, rows} : std::array{rows, columns};
  };
  const AnyView<void, 2> A = arena.view<2>(a, stored(shape.m, shape.k, ta));
  const AnyView<void, 2> B = arena.view<2>(b, stored(shape.k, shape.n, tb));
  const AnyView<void, 2> C = arena.view<2>(c, {shape.m, shape.n});
  matmul(ctx, A, B, C, shape.transpose, shape.accumulate);
  ctx.synchronize();
  const int in_a_row = ctx.device() == Device::cuda ? 20 : 1;
  std::vector<double> times;
  const Stopwatch total;
  while (times.size() < 3 || total.seconds() < budget) {
    throw_if_stopped();
    const Stopwatch watch;
    for (int i = 0; i < in_a_row; ++i) matmul(ctx, A, B, C, shape.transpose, shape.accumulate);
    ctx.synchronize();
    times.push_back(watch.seconds() / in_a_row);
  }
  return median(std::move(times));
}

}  // namespace

double measure_product_rate(Context& ctx, const TrainSettings& settings, double seconds) {
  const std::vector<TrainingProduct> products = training_products(settings, settings.micro_batch_sequences);
  double flops = 0, time = 0;
  const double budget = seconds / static_cast<double>(products.size());
  for (const auto& [shape, of_rows, result, times] : products) {
    const double once =
        2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
    flops += static_cast<double>(times) * once;
    time += static_cast<double>(times) * time_product(ctx, shape, settings.precision, result, budget);
  }
  return flops / time;
}

}  // namespace keel
