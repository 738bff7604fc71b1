#include "keel/kernels/cast/cast_cpu.h"

#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/simd.h"

namespace keel::KEEL_ISA {
namespace {

/// row(from, to) for every row of the two.
template <class From, class To, class Row>
void for_rows(View<From, 2> from, View<To, 2> to, Threads threads, Row row) {
  const int64_t rows = from.extent(0);
  const int64_t from_stride = from.stride(0), to_stride = to.stride(0);
  From* from_data = from.data();
  To* to_data = to.data();
  for_ranges(threads, rows, from.size(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) row(from_data + r * from_stride, to_data + r * to_stride);
    finish_stores_past_caches();
  });
}

}  // namespace

void narrow_rows(View<const float, 2> from, View<Bf16, 2> to, Threads threads) {
  const int64_t columns = from.extent(1);
  for_rows(from, to, threads, [&](const float* x, Bf16* y) {
    for_columns(columns, [&](auto at) { at.store_past_caches(y, at.load(x)); });
  });
}

void widen_rows(View<const Bf16, 2> from, View<float, 2> to, Threads threads) {
  const int64_t columns = from.extent(1);
  for_rows(from, to, threads,
           [&](const Bf16* x, float* y) { for_columns(columns, [&](auto at) { at.store(y, at.load(x)); }); });
}

}  // namespace keel::KEEL_ISA
