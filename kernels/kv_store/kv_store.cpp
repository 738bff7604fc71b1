#include "keel/kernels/kv_store/kv_store.h"

#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/kv_store/kv_store_cpu.h"

namespace keel {

void kv_store(Context& ctx, View<const float, 3> x, View<const int32_t, 1> rows, View<float, 3> cache) {
  check_shape("kv_store", "x", x, x.extents());
  check_shape("kv_store", "rows", rows, {x.extent(0)});
  check_shape("kv_store", "cache", cache, {cache.extent(0), x.extent(1), x.extent(2)});
  KEEL_CALL_ISA(ctx.isa(), kv_store(x, rows.data(), cache, ctx.threads()));
}

}  // namespace keel
