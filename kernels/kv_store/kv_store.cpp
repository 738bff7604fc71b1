#include "keel/kernels/kv_store/kv_store.h"

#include <string>

#include "keel/base/error.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/kv_store/kv_store_cpu.h"
#include "keel/kernels/kv_store/kv_store_cuda.h"

namespace keel {
namespace {

void check_rows(const View<const int32_t, 1>& rows, int64_t cache_rows) {
  for (int64_t n = 0; n < rows.extent(0); ++n) {
    if (rows(n) >= 0 && rows(n) < cache_rows) continue;
    throw Error(ErrorKind::shape, "row " + std::to_string(rows(n)) + " of a cache of " + std::to_string(cache_rows),
                "kv_store: rows");
  }
}

}  // namespace

void kv_store(Context& ctx, AnyView<const void, 3> x, View<const int32_t, 1> rows, AnyView<void, 3> cache) {
  check_shape("kv_store", "x", x, x.extents());
  check_shape("kv_store", "rows", rows, {x.extent(0)});
  check_shape("kv_store", "cache", cache, {cache.extent(0), x.extent(1), x.extent(2)});
  check_type("kv_store", "cache", cache, x.type());
  if (ctx.device() == Device::cpu) check_rows(rows, cache.extent(0));
  const OperationScope scope(ctx, "kv_store", {.flops = 0, .bytes = bytes_of(x, 2)});
  if (ctx.device() == Device::cuda) return cuda::kv_store(ctx.queue(), x, rows.data(), cache);
  const auto from = floats_of("kv_store", "x", x);
  KEEL_CALL_ISA(ctx.isa(), kv_store(from, rows.data(), cache.as<float>(), ctx.team()));
}

}  // namespace keel
