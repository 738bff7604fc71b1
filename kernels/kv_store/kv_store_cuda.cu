#include "keel/kernels/kv_store/kv_store_cuda.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/row_kernel.cuh"

namespace keel {
namespace {

constexpr int kThreads = 256;

/// [rows, heads, head_dim], rows and heads apart by strides.
template <class T>
struct Heads {
  T* data;
  int64_t row, head;
};

/// A thread copies one element, or four.
template <class T, bool kFour>
__global__ void __launch_bounds__(kThreads)
    store_rows(Heads<const T> x, int64_t N, int heads, int head_dim, const int32_t* __restrict__ rows,
               int64_t cache_rows, Heads<T> cache) {
  const int columns = head_dim / (kFour ? 4 : 1);
  const int64_t index = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  const int64_t n = index / (int64_t{heads} * columns);
  if (n >= N) return;
  const int at = static_cast<int>(index - n * heads * columns), head = at / columns, column = at % columns;
  const int64_t row = rows[n];
  if (row < 0 || row >= cache_rows) return;
  const T* from = x.data + n * x.row + head * x.head;
  T* to = cache.data + row * cache.row + head * cache.head;
  if constexpr (kFour) {
    store4(to + 4 * column, load4(from + 4 * column));
  } else {
    to[column] = from[column];
  }
}

}  // namespace

void keel_cuda_kv_store(CudaQueue& queue, const AnyView<const void, 3>& x, const int32_t* rows,
                        const AnyView<void, 3>& cache) {
  const bool four = have_wide_rows(x, cache);
  const auto blocks = static_cast<unsigned>(chunk_count(x.size() / (four ? 4 : 1), kThreads));
  with_element_type(x.type(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch(queue, four ? store_rows<T, true> : store_rows<T, false>, dim3(blocks), kThreads, 0,
           Heads<const T>{static_cast<const T*>(x.data()), x.stride(0), x.stride(1)}, x.extent(0),
           static_cast<int>(x.extent(1)), static_cast<int>(x.extent(2)), rows, cache.extent(0),
           Heads<T>{static_cast<T*>(cache.data()), cache.stride(0), cache.stride(1)});
  });
}

}  // namespace keel
