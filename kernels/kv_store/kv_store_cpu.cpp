#include "keel/kernels/kv_store/kv_store_cpu.h"

#include "keel/kernels/common/parallel.h"

namespace keel::KEEL_ISA {

void kv_store(View<const float, 3> x, const int32_t* rows, View<float, 3> cache, Threads threads) {
  const int64_t N = x.extent(0), heads = x.extent(1), bytes = x.extent(2) * static_cast<int64_t>(sizeof(float));
  const int64_t x_row = x.stride(0), x_head = x.stride(1), cache_row = cache.stride(0), cache_head = cache.stride(1);
  const float* from = x.data();
  float* to = cache.data();
  for_ranges(threads, N, x.size(), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t h = 0; h < heads; ++h) {
        __builtin_memcpy(to + rows[n] * cache_row + h * cache_head, from + n * x_row + h * x_head, bytes);
      }
    }
  });
}

}  // namespace keel::KEEL_ISA
