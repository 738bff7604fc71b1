#include "keel/kernels/exp_scale/exp_scale_cuda.h"

#include "keel/kernels/common/device.cuh"

namespace keel {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) forward(const float* base, const float* s, int64_t n, float* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i] = static_cast<float>(base[i] * exp(static_cast<double>(s[i])));
}

__global__ void __launch_bounds__(kThreads) backward(const float* dy, const float* y, int64_t n, float* ds) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) ds[i] = static_cast<float>(ds[i] + static_cast<double>(dy[i]) * y[i]);
}

dim3 blocks(int64_t n) {
  return dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads));
}

}  // namespace

void keel_cuda_exp_scale(CudaQueue& queue, const float* base, const float* s, int64_t n, float* y) {
  launch(queue, forward, blocks(n), kThreads, 0, base, s, n, y);
}

void keel_cuda_exp_scale_backward(CudaQueue& queue, const float* dy, const float* y, int64_t n, float* ds) {
  launch(queue, backward, blocks(n), kThreads, 0, dy, y, n, ds);
}

}  // namespace keel
