#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/device.cuh"
#include "keel/kernels/matmul/matmul_cuda.h"

namespace keel {
namespace {

constexpr int kThreads = 256;

/// Thread by thread one element, or four where all rows allow it.
template <bool kFour>
__global__ void __launch_bounds__(kThreads) sum_parts(const float* __restrict__ parts, int64_t P, int64_t m, int64_t n,
                                                      float* __restrict__ c, int64_t stride, bool accumulate) {
  constexpr int kWidth = kFour ? 4 : 1;
  const int64_t columns = n / kWidth, index = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (index >= m * columns) return;
  const int64_t row = index / columns, column = index % columns * kWidth;
  const float* from = parts + row * n + column;
  float* to = c + row * stride + column;
  if constexpr (kFour) {
    float4 sum = accumulate ? load4(to) : make_float4(0, 0, 0, 0);
    for (int64_t p = 0; p < P; ++p) {
      const float4 term = load4(from + p * m * n);
      sum = make_float4(sum.x + term.x, sum.y + term.y, sum.z + term.z, sum.w + term.w);
    }
    store4(to, sum);
  } else {
    float sum = accumulate ? *to : 0.0F;
    for (int64_t p = 0; p < P; ++p) sum += from[p * m * n];
    *to = sum;
  }
}

}  // namespace

void keel_cuda_sum_products(CudaQueue& queue, const float* parts, int64_t P, int64_t m, int64_t n, float* c,
                            int64_t stride, bool accumulate) {
  const bool four = n % 4 == 0 && stride % 4 == 0 && is_aligned(parts, 16) && is_aligned(c, 16);
  const int64_t elements = m * n / (four ? 4 : 1);
  launch(queue, four ? sum_parts<true> : sum_parts<false>, dim3(static_cast<unsigned>(chunk_count(elements, kThreads))),
         kThreads, 0, parts, P, m, n, c, stride, accumulate);
}

}  // namespace keel
