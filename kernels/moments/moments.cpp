#include "keel/kernels/moments/moments.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/moments/moments_cpu.h"
#include "keel/kernels/moments/moments_cuda.h"

namespace keel {
namespace {

int64_t log_sum_bytes(int64_t n) {
  return chunk_count(n, kLogSumChunk) * static_cast<int64_t>(sizeof(double));
}

}  // namespace

void moments(Context& ctx, View<const float, 2> x, AnyView<const void, 2> y, View<double, 1> sums,
             View<double, 2> partial) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  check_shape("moments", "x", x, {rows, d});
  if (y) check_shape("moments", "y", y, {rows, d});
  check_shape("moments", "sums", sums, {3});
  check_dense("moments", "partial", partial, {chunk_count(rows * d, kMomentsChunk), 3});
  const OperationScope scope(ctx, "moments",
                             {.flops = 4 * static_cast<double>(x.size()), .bytes = bytes_of(x) + bytes_of(y)});
  if (ctx.device() == Device::cuda) return cuda::moments(ctx.queue(), x, y, sums.data(), partial.data());
  const auto floats = floats_of("moments", "y", y);
  KEEL_CALL_ISA(ctx.isa(), moments(x, floats, sums.data(), partial.data(), ctx.team()));
}

void log_sum(Context& ctx, View<const float, 1> r, View<double, 1> sum) {
  const int64_t n = r.extent(0);
  check_shape("log_sum", "r", r, {n});
  check_shape("log_sum", "sum", sum, {1});
  auto* partial = static_cast<double*>(ctx.scratch(log_sum_bytes(n)));
  if (ctx.device() == Device::cuda) return cuda::log_sum(ctx.queue(), r.data(), n, sum.data(), partial);
  KEEL_CALL_ISA(ctx.isa(), log_sum(r.data(), n, *sum.data(), partial, ctx.team()));
}

void expect_log_sum(OperationMemory& memory, int64_t n) {
  memory.expect(OperationMemory::scratch, log_sum_bytes(n));
}

}  // namespace keel
