#pragma once

// CUDA C++ on the host: with this folder first among the include folders, g++ compiles an unchanged .cu file, and its
// kernels run on the CPU, one fiber a thread. See ../README.md.

#define KEEL_CUDA_ON_CPU 1

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) alignas(n)
// __shared__ and __constant__ stay undefined: shared memory is had by KEEL_SHARED and dynamic_shared (device.cuh), which
// the emulation can fill, limit and guard.

#include "cuda_runtime_api.h"

#include "cuda_on_cpu/atomic.h"
#include "cuda_on_cpu/intrinsics.h"
#include "cuda_on_cpu/launch.h"
#include "cuda_on_cpu/thread.h"
#include "cuda_on_cpu/warp.h"

template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
cudaError_t cudaMallocManaged(T** memory, size_t bytes, unsigned flags = cudaMemAttachGlobal) {
  return cudaMallocManaged(reinterpret_cast<void**>(memory), bytes, flags);
}
template <class T>
cudaError_t cudaMallocHost(T** memory, size_t bytes, unsigned flags = cudaHostAllocDefault) {
  return cudaHostAlloc(reinterpret_cast<void**>(memory), bytes, flags);
}
template <class T>
cudaError_t cudaHostAlloc(T** memory, size_t bytes, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(memory), bytes, flags);
}
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(Parameters...), int threads,
                                                          size_t dynamic_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel), threads,
                                                       dynamic_bytes);
}
