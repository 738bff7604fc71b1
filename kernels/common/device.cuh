#pragma once

// What device code uses beyond plain CUDA C++. The only file with inline PTX, and the only one that knows of the
// emulation (KEEL_CUDA_ON_CPU, tests/cuda_on_cpu). For *_cuda.cu only.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "keel/kernels/common/cuda_queue.h"

namespace keel {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

/// kernel<<<grid, block, shared_bytes, queue.stream>>>(arguments...); an empty grid launches nothing.
template <class... Parameters, class... Arguments>
void launch(CudaQueue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr size_t kFree = 48 * 1024;  // more has to be asked for
  if (shared_bytes > kFree) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
          "shared memory of a kernel");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue.stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
        "launch of a kernel");
}

/// KEEL_SHARED(float, name, [32]) is `__shared__ float name[32]`; dynamic_shared<T>() the part whose size the launch gave.
#if defined(KEEL_CUDA_ON_CPU)
#define KEEL_SHARED(T, name, ...)    \
  using name##_type = T __VA_ARGS__; \
  static const char name##_key = 0;  \
  name##_type& name =                \
      *static_cast<name##_type*>(::cuda_on_cpu::block_shared(&name##_key, sizeof(name##_type), alignof(name##_type)))
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(::cuda_on_cpu::block_dynamic_shared());
}
#else
#define KEEL_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char keel_dynamic_shared[];
  return reinterpret_cast<T*>(keel_dynamic_shared);
}
#endif

/// Whether accesses of so many bytes may begin there.
template <class T>
inline bool is_aligned(const T* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// ---- sums, in an order that depends on nothing but the size of the block

template <class T>
__device__ inline T warp_sum(T value) {
#if defined(KEEL_CUDA_ON_CPU)
  return ::cuda_on_cpu::warp_sum(value);
#else
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
#endif
}
__device__ inline float warp_max(float value) {
#if defined(KEEL_CUDA_ON_CPU)
  return ::cuda_on_cpu::warp_max(value);
#else
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  return value;
#endif
}

/// The sum over the block of each of N values; every thread gets it. All threads of the block call it; blocks are of
/// whole warps, at most 1024 threads, in one dimension.
template <int N, class T>
__device__ inline void block_sum(T (&values)[N]) {
  KEEL_SHARED(T, parts, [N][kWarp]);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  __syncthreads();  // the array may still be read from the call before
  for (int i = 0; i < N; ++i) {
    const T sum = warp_sum(values[i]);
    if (lane == 0) parts[i][warp] = sum;
  }
  __syncthreads();
  for (int i = 0; i < N; ++i) values[i] = warp_sum(lane < warps ? parts[i][lane] : T(0));
}
template <class T>
__device__ inline T block_sum(T value) {
  T values[1] = {value};
  block_sum(values);
  return values[0];
}

// ---- four values at a time, in one access of 16 bytes (fp32) or 8 (bf16); the address is a multiple of that

__device__ inline float4 load4(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ inline void store4(float* to, float4 values) {
  *reinterpret_cast<float4*>(to) = values;
}
/// Plain words and no pair of __nv_bfloat162, of which nvcc makes two accesses.
__device__ inline float4 load4(const __nv_bfloat16* from) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000U),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000U));
}
/// The nearest bf16 of each, ties to even.
__device__ inline unsigned pack_bf16(float low, float high) {
  const unsigned first = __bfloat16_as_ushort(__float2bfloat16_rn(low));
  const unsigned second = __bfloat16_as_ushort(__float2bfloat16_rn(high));
  return first | second << 16;
}
__device__ inline void store4(__nv_bfloat16* to, float4 values) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack_bf16(values.x, values.y), pack_bf16(values.z, values.w));
}

/// store4 to global memory, which stays one access: of a plain store the compiler makes four where it has taken the values
/// apart.
__device__ inline void store4_global(float* to, float4 values) {
#if defined(KEEL_CUDA_ON_CPU)
  store4(to, values);
#else
  asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(values.x), "f"(values.y), "f"(values.z),
               "f"(values.w)
               : "memory");
#endif
}
__device__ inline void store4_global(__nv_bfloat16* to, float4 values) {
  store4(to, values);
}

__device__ inline float load1(const float* from) {
  return *from;
}
__device__ inline float load1(const __nv_bfloat16* from) {
  return __bfloat162float(*from);
}
__device__ inline void store1(float* to, float value) {
  *to = value;
}
__device__ inline void store1(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16_rn(value);
}

// ---- tensor cores and copies to shared memory

/// d += a b for a warp: a 16 x 16, b 16 x 8, in bf16, sums in fp32 (PTX ISA, mma.m16n8k16). With lane = 4 g + t the
/// registers hold  a: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..), pairs along k;  b: (2t.., g),
/// (2t + 8.., g), pairs along k;  d: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ inline void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if defined(KEEL_CUDA_ON_CPU)
  ::cuda_on_cpu::mma_m16n8k16(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// Four 8 x 8 matrices of bf16 from shared memory: lane 8 i + r gives the address of row r of matrix i (16 bytes, a
/// multiple of 16), and lane 4 g + t gets elements (g, 2t), (g, 2t + 1) of each or, transposed, (2t, g), (2t + 1, g).
template <bool kTransposed>
__device__ inline void ldmatrix_x4(unsigned (&out)[4], const void* row) {
#if defined(KEEL_CUDA_ON_CPU)
  ::cuda_on_cpu::ldmatrix_x4(out, row, kTransposed);
#else
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

/// Copies 16 bytes from global to shared memory in the background, or fills them with zeros; both addresses are multiples
/// of 16. Copies are complete for the thread that asked for them after cp_async_wait, for others after a barrier too.
__device__ inline void cp_async16(void* shared, const void* global, bool valid = true) {
#if defined(KEEL_CUDA_ON_CPU)
  ::cuda_on_cpu::cp_async16(shared, global, valid);
#else
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
#endif
}
__device__ inline void cp_async_commit() {
#if defined(KEEL_CUDA_ON_CPU)
  ::cuda_on_cpu::cp_async_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// All groups of this thread but the newest kPending.
template <int kPending>
__device__ inline void cp_async_wait() {
#if defined(KEEL_CUDA_ON_CPU)
  ::cuda_on_cpu::cp_async_wait(kPending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace keel
