// Threads of a block and blocks of a grid: indices, barriers, shared memory, cp.async, atomics, in all orders.

#include <algorithm>
#include <numeric>

#include "keel/kernels/common/device.cuh"
#include "test_support.h"

namespace cuda_on_cpu {
namespace {

using BlockTest = EmulationTest;

__global__ void indices(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  atomicAdd(&out[at], at + 1);
}

TEST_F(BlockTest, EveryThreadRunsOnce) {
  in_all_orders([] {
    for (const auto& [grid, block] : {std::pair{dim3(3, 2, 4), dim3(5, 7, 3)}, std::pair{dim3(1), dim3(1)},
                                      std::pair{dim3(17), dim3(33)}, std::pair{dim3(2), dim3(1024)}}) {
      const unsigned count = grid.x * grid.y * grid.z * block.x * block.y * block.z;
      DeviceArray<unsigned> out(std::vector<unsigned>(count, 0));
      ASSERT_EQ((Launch{grid, block}(indices, out.data())), cudaSuccess);
      std::vector<unsigned> want(count);
      std::iota(want.begin(), want.end(), 1);
      EXPECT_EQ(out.host(), want);
    }
  });
}

__global__ void order_of_threads(int* out) { out[atomicAdd(&out[64], 1)] = static_cast<int>(threadIdx.x); }

TEST_F(BlockTest, OrdersDiffer) {
  std::vector<std::vector<int>> seen;
  const auto run = [&] {
    DeviceArray<int> out(std::vector<int>(65, 0));
    Launch{1, 64}(order_of_threads, out.data());
    seen.push_back(out.host());
  };
  run();
  options.order = Order::reverse;
  run();
  options.order = Order::random;
  run();
  run();
  options.seed = 2;
  run();
  std::vector<int> first(64);
  std::iota(first.begin(), first.end(), 0);
  first.push_back(64);
  EXPECT_EQ(seen[0], first);
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]);
  }
}

// ---- barriers

__global__ void rotate(int* out, int rounds) {
  KEEL_SHARED(int, s, [1024]);
  const unsigned t = threadIdx.x, n = blockDim.x;
  s[t] = static_cast<int>(t);
  for (int i = 0; i < rounds; ++i) {
    __syncthreads();
    const int next = s[(t + 1) % n];
    __syncthreads();
    s[t] = next;
  }
  out[blockIdx.x * n + t] = s[t];
}

TEST_F(BlockTest, BarriersOrderSharedMemory) {
  in_all_orders([] {
    for (const unsigned threads : {1U, 31U, 33U, 256U, 1024U}) {
      DeviceArray<int> out(2 * threads);
      ASSERT_EQ((Launch{2, threads}(rotate, out.data(), 5)), cudaSuccess);
      const std::vector<int> got = out.host();
      for (unsigned i = 0; i < 2 * threads; ++i) EXPECT_EQ(got[i], static_cast<int>((i + 5) % threads));
    }
  });
}

__global__ void barriers_that_count(int* out) {
  const int count = __syncthreads_count(threadIdx.x % 3 == 0);
  const int any = __syncthreads_or(threadIdx.x == 77), none = __syncthreads_or(threadIdx.x == 200);
  const int all = __syncthreads_and(threadIdx.x < 200), not_all = __syncthreads_and(threadIdx.x != 5);
  out[threadIdx.x] = count * 10000 + any * 1000 + none * 100 + all * 10 + not_all;
}

TEST_F(BlockTest, BarriersCount) {
  in_all_orders([] {
    DeviceArray<int> out(100);
    ASSERT_EQ((Launch{1, 100}(barriers_that_count, out.data())), cudaSuccess);
    EXPECT_EQ(out.host(), std::vector<int>(100, 341010));
  });
}

// ---- shared memory

template <int kArray>
__device__ float* one_of_two() {
  KEEL_SHARED(float, s, [16]);
  return s;
}

__global__ void shared_arrays(float* out) {
  float* dynamic = keel::dynamic_shared<float>();
  KEEL_SHARED(double, d, [3]);
  float *first = one_of_two<1>(), *second = one_of_two<2>();
  out[0] = first[0];
  out[1] = dynamic[5];
  out[2] = static_cast<float>(reinterpret_cast<uintptr_t>(dynamic) % 128);
  out[3] = static_cast<float>(reinterpret_cast<uintptr_t>(d) % alignof(double));
  out[4] = first == second ? 1 : 0;
  out[5] = one_of_two<1>() == first ? 1 : 0;
  first[0] = dynamic[5] = 1;  // the next block finds NaN again
}

TEST_F(BlockTest, SharedMemoryStartsAsNan) {
  for (const unsigned blocks : {1U, 3U}) {
    DeviceArray<float> out(6);
    ASSERT_EQ((Launch{blocks, 1, 24}(shared_arrays, out.data())), cudaSuccess);
    const std::vector<float> got = out.host();
    EXPECT_NE(got[0], got[0]);
    EXPECT_NE(got[1], got[1]);
    EXPECT_EQ(std::vector<float>(got.begin() + 2, got.end()), (std::vector<float>{0, 0, 0, 1}));
  }
}

template <int kBytes>
__global__ void static_shared() {
  KEEL_SHARED(char, s, [kBytes]);
  s[kBytes - 1] = 1;
}

TEST_F(BlockTest, SharedMemoryIsLimited) {
  EXPECT_EQ((Launch{1, 1}(static_shared<48 * 1024>)), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Launch{1, 1}(static_shared<48 * 1024 + 16>);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  cuda_on_cpu_reset();
  constexpr int kDynamic = 180 * 1024;
  const auto kernel = static_shared<48 * 1024>;
  ASSERT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kDynamic), cudaSuccess);
  Launch{1, 1, kDynamic}(kernel);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure) << "static and dynamic together";
}

// ---- cp.async

// Keeps `ahead` rows in flight.
template <int kAhead>
__global__ void copy_rows(float* out, const float* in, int rows, int valid_rows) {
  auto* s = keel::dynamic_shared<float4>();  // [kAhead + 1][threads]
  const unsigned n = blockDim.x, t = threadIdx.x;
  const auto fetch = [&](int row) {
    if (row < rows) {
      const float4* from = reinterpret_cast<const float4*>(in) + (row < valid_rows ? row : 0) * n + t;
      keel::cp_async16(&s[row % (kAhead + 1) * n + t], from, row < valid_rows);
    }
    keel::cp_async_commit();
  };
  for (int row = 0; row < kAhead; ++row) fetch(row);
  for (int row = 0; row < rows; ++row) {
    fetch(row + kAhead);
    keel::cp_async_wait<kAhead>();
    __syncthreads();
    reinterpret_cast<float4*>(out)[row * n + t] = s[row % (kAhead + 1) * n + (t + 1) % n];
    __syncthreads();
  }
}

TEST_F(BlockTest, AsyncCopiesArriveWhenWaitedFor) {
  constexpr int kRows = 7, kValid = 5, kThreads = 64;
  std::vector<float> values(kRows * kThreads * 4);
  std::iota(values.begin(), values.end(), 1);
  in_all_orders([&] {
    DeviceArray<float> in(values), out(values.size());
    ASSERT_EQ((Launch{1, kThreads, 3 * kThreads * 16}(copy_rows<2>, out.data(), in.data(), kRows, kValid)), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<float> got = out.host();
    for (int i = 0; i < kRows * kThreads * 4; ++i) {
      const int row = i / (kThreads * 4), column = (i + 4) % (kThreads * 4);
      EXPECT_EQ(got[i], row < kValid ? values[row * kThreads * 4 + column] : 0);
    }
  });
}

__global__ void not_waited_for(float* out, const float* in) {
  KEEL_SHARED(float4, s, [2]);
  keel::cp_async16(&s[0], in);
  keel::cp_async_commit();
  keel::cp_async16(&s[1], in);  // in no group
  keel::cp_async_wait<0>();
  out[0] = s[0].x;
  out[1] = s[1].x;
  keel::cp_async_commit();
  keel::cp_async_wait<1>();
  out[2] = s[1].x;
  keel::cp_async_wait<0>();
  out[3] = s[1].x;
}

TEST_F(BlockTest, AsyncCopiesDoNotArriveEarly) {
  DeviceArray<float> in({5, 6, 7, 8}), out(4);
  ASSERT_EQ((Launch{1, 1}(not_waited_for, out.data(), in.data())), cudaSuccess);
  const std::vector<float> got = out.host();
  EXPECT_EQ(got[0], 5);
  EXPECT_NE(got[1], got[1]);
  EXPECT_NE(got[2], got[2]);
  EXPECT_EQ(got[3], 5);
}

__global__ void misaligned_copy(const float* in) {
  KEEL_SHARED(float4, s, [2]);
  keel::cp_async16(s, in + 1);
}
__global__ void copy_to_global(float* out, const float* in) { keel::cp_async16(out, in); }

TEST_F(BlockTest, AsyncCopiesAreChecked) {
  {
    DeviceArray<float> in(8);
    Launch{1, 1}(misaligned_copy, in.data());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorMisalignedAddress);
  }
  cuda_on_cpu_reset();
  DeviceArray<float> in(8);
  Launch{1, 1}(copy_to_global, in.data() + 4, in.data());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorInvalidAddressSpace);
}

// ---- atomics

struct Atomics {
  int add, sub, maximum, minimum;
  unsigned bit_and, bit_or, bit_xor, incremented, decremented;
  unsigned long long add64;
  float add_float;
  double add_double;
  unsigned lock, sum;
  int exchanged;
};

__global__ void use_atomics(Atomics* a, unsigned* olds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  olds[i] = static_cast<unsigned>(atomicAdd(&a->add, 2));
  atomicSub(&a->sub, 3);
  atomicMax(&a->maximum, static_cast<int>(i));
  atomicMin(&a->minimum, -static_cast<int>(i));
  atomicAnd(&a->bit_and, ~(1U << i % 32));
  atomicOr(&a->bit_or, 1U << i % 32);
  atomicXor(&a->bit_xor, i);
  atomicInc(&a->incremented, 99);
  atomicDec(&a->decremented, 99);
  atomicAdd(&a->add64, 1ULL << 33);
  atomicAdd(&a->add_float, 1.0F);
  atomicAdd(&a->add_double, 0.5);
  unsigned old = a->sum, seen;
  do {
    seen = old;
    old = atomicCAS(&a->sum, seen, seen + i);
  } while (old != seen);
  atomicExch(&a->exchanged, 1);
}

TEST_F(BlockTest, Atomics) {
  in_all_orders([] {
    constexpr unsigned kCount = 4 * 96;
    DeviceArray<Atomics> a(std::vector{Atomics{0, 0, 0, 0, ~0U, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}});
    DeviceArray<unsigned> olds(kCount);
    ASSERT_EQ((Launch{4, 96}(use_atomics, a.data(), olds.data())), cudaSuccess);
    const Atomics got = a.host()[0];
    EXPECT_EQ(got.add, 2 * kCount);
    EXPECT_EQ(got.sub, -3 * static_cast<int>(kCount));
    EXPECT_EQ(got.maximum, kCount - 1);
    EXPECT_EQ(got.minimum, 1 - static_cast<int>(kCount));
    EXPECT_EQ(got.bit_and, 0U);
    EXPECT_EQ(got.bit_or, ~0U);
    EXPECT_EQ(got.bit_xor, 0U);  // of 0 ... 383
    EXPECT_EQ(got.incremented, kCount % 100);
    EXPECT_EQ(got.decremented, 100 - kCount % 100);
    EXPECT_EQ(got.add64, (1ULL << 33) * kCount);
    EXPECT_EQ(got.add_float, kCount);
    EXPECT_EQ(got.add_double, kCount / 2.0);
    EXPECT_EQ(got.sum, kCount * (kCount - 1) / 2);
    EXPECT_EQ(got.exchanged, 1);
    std::vector<unsigned> each = olds.host();
    std::sort(each.begin(), each.end());
    for (unsigned i = 0; i < kCount; ++i) EXPECT_EQ(each[i], 2 * i);
  });
}

// The block that ends last sees what the others wrote.
__global__ void last_block(float* parts, unsigned* count, float* out) {
  parts[blockIdx.x] = static_cast<float>(blockIdx.x);
  __threadfence();
  if (atomicAdd(count, 1) != gridDim.x - 1) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];
  *out = sum;
}

TEST_F(BlockTest, FencesPublish) {
  in_all_orders([] {
    DeviceArray<float> parts(50), out(1);
    DeviceArray<unsigned> count(std::vector{0U});
    ASSERT_EQ((Launch{50, 1}(last_block, parts.data(), count.data(), out.data())), cudaSuccess);
    EXPECT_EQ(out.host()[0], 50 * 49 / 2);
  });
}

// ---- large arguments, deep stacks

struct Table {
  float values[1000];
};
__global__ void read_table(float* out, const __grid_constant__ Table table, int i) { out[i] = table.values[i]; }

TEST_F(BlockTest, ArgumentsMayBeStructs) {
  Table table{};
  table.values[77] = 5;
  DeviceArray<float> out(100);
  options.streams = Streams::lazy;
  ASSERT_EQ((Launch{1, 1}(read_table, out.data(), table, 77)), cudaSuccess);
  table.values[77] = 6;
  EXPECT_EQ(out.host()[77], 5);
}

__global__ void use_stack(float* out) {
  volatile float local[8192];  // 32 KiB a thread
  for (int i = 0; i < 8192; ++i) local[i] = static_cast<float>(i);
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 8192; ++i) sum += local[i];
  out[threadIdx.x] = sum;
}

TEST_F(BlockTest, ThreadsHaveStacks) {
  DeviceArray<float> out(64);
  ASSERT_EQ((Launch{1, 64}(use_stack, out.data())), cudaSuccess);
  float sum = 0;
  for (int i = 0; i < 8192; ++i) sum += static_cast<float>(i);
  EXPECT_EQ(out.host(), std::vector<float>(64, sum));
}

// A failure ends one launch; after a reset the next runs as if nothing had been.
__global__ void fails_in_the_middle(float* out) {
  if (threadIdx.x < 32) __syncthreads();
  out[threadIdx.x] = 1;
  __syncthreads();
}

TEST_F(BlockTest, GoesOnAfterAFailure) {
  in_all_orders([] {
    for (int i = 0; i < 3; ++i) {
      {
        DeviceArray<float> out(64);
        Launch{3, 64}(fails_in_the_middle, out.data());
        EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
      }
      cuda_on_cpu_reset();
      DeviceArray<int> out(64);
      ASSERT_EQ((Launch{2, 32}(rotate, out.data(), 3)), cudaSuccess);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      EXPECT_EQ(out.host()[0], 3);
    }
  });
}

TEST_F(BlockTest, HostCodeMayNotCallDeviceFunctions) { EXPECT_DEATH(__syncthreads(), "host code called a device"); }

}  // namespace
}  // namespace cuda_on_cpu
