#include "keel/kernels/machine_rate/machine_rate_cuda.h"

#include "keel/kernels/common/device.cuh"

namespace keel {
namespace {

constexpr int kThreads = 256, kBlocks = 8;  // of a multiprocessor
constexpr int kChains = 8;                  // of a thread

unsigned blocks_of(const CudaQueue& queue) {
  return static_cast<unsigned>(kBlocks * queue.multiprocessors);
}

__global__ void __launch_bounds__(kThreads)
    add_scaled(const float* __restrict__ b, const float* __restrict__ c, float s, float* __restrict__ a, int64_t n) {
  const int64_t step = int64_t{4} * kThreads * gridDim.x;
  for (int64_t i = 4 * (blockIdx.x * int64_t{kThreads} + threadIdx.x); i < n; i += step) {
    const float4 x = load4(b + i), y = load4(c + i);
    store4(a + i, make_float4(fmaf(s, y.x, x.x), fmaf(s, y.y, x.y), fmaf(s, y.z, x.z), fmaf(s, y.w, x.w)));
  }
}

__global__ void __launch_bounds__(kThreads) run_chains(int64_t rounds, float s, float t, float* sum) {
  float x[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) x[i] = static_cast<float>(threadIdx.x + i);
#pragma unroll 4
  for (int64_t round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) x[i] = fmaf(x[i], s, t);
  }
  float all = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) all += x[i];
  if (all < 0) *sum = all;
}

}  // namespace

void keel_cuda_triad(CudaQueue& queue, const float* b, const float* c, float s, float* a, int64_t n) {
  launch(queue, add_scaled, blocks_of(queue), kThreads, 0, b, c, s, a, n);
}

double keel_cuda_multiply_adds(CudaQueue& queue, int64_t rounds, float s, float t, float* sum) {
  launch(queue, run_chains, blocks_of(queue), kThreads, 0, rounds, s, t, sum);
  return 2.0 * kChains * kThreads * blocks_of(queue) * static_cast<double>(rounds);
}

}  // namespace keel
