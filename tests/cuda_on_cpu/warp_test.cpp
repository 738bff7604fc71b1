// What the lanes of a warp do together, against plain loops over the lanes, in all orders.

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "keel/kernels/common/device.cuh"
#include "test_support.h"

namespace cuda_on_cpu {
namespace {

using WarpTest = EmulationTest;

constexpr int kLanes = 32;
int value_of(int lane) { return 7 * lane * lane + 3; }

// ---- shuffles

enum class Kind { any, exclusive_or, up, down };

template <class T>
__global__ void shuffle_all(T* out, Kind kind, int argument, int width) {
  const int lane = static_cast<int>(threadIdx.x);
  const T value = static_cast<T>(7 * lane * lane + 3);
  switch (kind) {
    case Kind::any:
      out[lane] = __shfl_sync(0xffffffffU, value, argument + lane, width);
      break;
    case Kind::exclusive_or:
      out[lane] = __shfl_xor_sync(0xffffffffU, value, argument, width);
      break;
    case Kind::up:
      out[lane] = __shfl_up_sync(0xffffffffU, value, static_cast<unsigned>(argument), width);
      break;
    case Kind::down:
      out[lane] = __shfl_down_sync(0xffffffffU, value, static_cast<unsigned>(argument), width);
      break;
  }
}

// The programming guide's rules, one by one.
int source_of(Kind kind, int lane, int argument, int width) {
  const int group = lane / width * width, inside = lane - group;
  switch (kind) {
    case Kind::any:
      return group + (argument + lane) % width;
    case Kind::exclusive_or:
      return (lane ^ argument) < group + width ? lane ^ argument : lane;
    case Kind::up:
      return inside >= argument ? lane - argument : lane;
    case Kind::down:
      return inside + argument < width ? lane + argument : lane;
  }
  return -1;
}

template <class T>
void check_shuffles() {
  DeviceArray<T> out(kLanes);
  for (const Kind kind : {Kind::any, Kind::exclusive_or, Kind::up, Kind::down}) {
    for (const int width : {1, 2, 8, 32}) {
      for (const int argument : {0, 1, 3, 8, 16, 31}) {
        Launch{1, kLanes}(shuffle_all<T>, out.data(), kind, argument, width);
        const std::vector<T> got = out.host();
        for (int lane = 0; lane < kLanes; ++lane) {
          EXPECT_EQ(got[lane], static_cast<T>(value_of(source_of(kind, lane, argument, width))))
              << "kind " << static_cast<int>(kind) << ", width " << width << ", argument " << argument << ", lane "
              << lane;
        }
      }
    }
  }
}

TEST_F(WarpTest, Shuffles) {
  in_all_orders([] {
    check_shuffles<int>();
    check_shuffles<double>();
  });
  check_shuffles<unsigned>();
  check_shuffles<float>();
  check_shuffles<long long>();
}

// Groups of a warp may go different ways, and meet again.
__global__ void two_groups(int* out) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  int value = lane;
  if (lane < 10) {
    for (int i = 0; i < 3; ++i) value = __shfl_sync(0x3ffU, value, (lane + 1) % 10);
  } else {
    value = __shfl_sync(0xfffffc00U, value, lane == 31 ? 10 : lane + 1);
  }
  out[threadIdx.x] = value + __shfl_xor_sync(0xffffffffU, value, 31);
}

TEST_F(WarpTest, GroupsGoDifferentWays) {
  in_all_orders([] {
    DeviceArray<int> out(64);
    ASSERT_EQ((Launch{1, 64}(two_groups, out.data())), cudaSuccess);
    const auto after = [](int lane) { return lane < 10 ? (lane + 3) % 10 : lane == 31 ? 10 : lane + 1; };
    const std::vector<int> got = out.host();
    for (int i = 0; i < 64; ++i) EXPECT_EQ(got[i], after(i % 32) + after(31 - i % 32)) << i;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  });
}

__global__ void absent_source(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffU, 1.0F, 20);
}

TEST_F(WarpTest, AnAbsentLaneGivesNan) {
  DeviceArray<float> out(16);
  ASSERT_EQ((Launch{1, 32}(absent_source, out.data())), cudaSuccess);
  for (const float value : out.host()) EXPECT_TRUE(std::isnan(value));
}

// Lanes that have ended are not waited for; nor are those that a block of 40 threads does not have.
__global__ void some_have_ended(int* out) {
  if (threadIdx.x % 3 == 0) return;
  out[threadIdx.x] = __popc(__ballot_sync(0xffffffffU, 1)) + 100 * __popc(__activemask());
}

TEST_F(WarpTest, EndedLanesAreNotWaitedFor) {
  in_all_orders([] {
    DeviceArray<int> out(40);
    ASSERT_EQ((Launch{1, 40}(some_have_ended, out.data())), cudaSuccess);
    const std::vector<int> got = out.host();
    EXPECT_EQ(got[1] % 100, 21);  // of 32, those that 3 does not divide
    EXPECT_EQ(got[38] % 100, 5);  // of 32 ... 39
  });
}

// ---- votes and reductions

struct Votes {
  unsigned ballot, any, all, match;
  unsigned add, minimum, maximum, bit_and, bit_or, bit_xor;
  int add_signed, minimum_signed, maximum_signed;
};

__global__ void vote(Votes* out, unsigned mask, const int* values) {
  const unsigned lane = threadIdx.x;
  if ((mask >> lane & 1) == 0) return;
  const int value = values[lane];
  const auto bits = static_cast<unsigned>(value);
  Votes& v = out[lane];
  v.ballot = __ballot_sync(mask, value > 0);
  v.any = static_cast<unsigned>(__any_sync(mask, value > 100));
  v.all = static_cast<unsigned>(__all_sync(mask, value > -100));
  v.match = __match_any_sync(mask, value % 3);
  v.add = __reduce_add_sync(mask, bits);
  v.minimum = __reduce_min_sync(mask, bits);
  v.maximum = __reduce_max_sync(mask, bits);
  v.bit_and = __reduce_and_sync(mask, bits);
  v.bit_or = __reduce_or_sync(mask, bits);
  v.bit_xor = __reduce_xor_sync(mask, bits);
  v.add_signed = __reduce_add_sync(mask, value);
  v.minimum_signed = __reduce_min_sync(mask, value);
  v.maximum_signed = __reduce_max_sync(mask, value);
}

TEST_F(WarpTest, VotesAndReductions) {
  std::vector<int> values(kLanes);
  for (int i = 0; i < kLanes; ++i) values[i] = (i * 37 + 11) % 101 - 50;
  for (const unsigned mask : {0xffffffffU, 0x0f0f00f1U, 0x80000000U}) {
    in_all_orders([&] {
      DeviceArray<int> in(values);
      DeviceArray<Votes> out(kLanes);
      ASSERT_EQ((Launch{1, kLanes}(vote, out.data(), mask, in.data())), cudaSuccess);
      const std::vector<Votes> got = out.host();
      for (int lane = 0; lane < kLanes; ++lane) {
        if ((mask >> lane & 1) == 0) continue;
        Votes want{0, 0, 1, 0, 0, ~0U, 0, ~0U, 0, 0, 0, 1000, -1000};
        for (int i = 0; i < kLanes; ++i) {
          if ((mask >> i & 1) == 0) continue;
          const auto bits = static_cast<unsigned>(values[i]);
          want.ballot |= unsigned{values[i] > 0} << i;
          want.any |= static_cast<unsigned>(values[i] > 100);
          want.all &= static_cast<unsigned>(values[i] > -100);
          want.match |= unsigned{values[i] % 3 == values[lane] % 3} << i;
          want.add += bits;
          want.minimum = std::min(want.minimum, bits);
          want.maximum = std::max(want.maximum, bits);
          want.bit_and &= bits;
          want.bit_or |= bits;
          want.bit_xor ^= bits;
          want.add_signed += values[i];
          want.minimum_signed = std::min(want.minimum_signed, values[i]);
          want.maximum_signed = std::max(want.maximum_signed, values[i]);
        }
        EXPECT_EQ(std::memcmp(&got[lane], &want, sizeof want), 0) << "lane " << lane << " of " << mask;
      }
    });
  }
}

// ---- sums: one wait gives the bits of five shuffles

template <class T>
__global__ void sums(T* out, const T* values) {
  T by_shuffles = values[threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes /= 2) by_shuffles += __shfl_xor_sync(0xffffffffU, by_shuffles, lanes);
  out[threadIdx.x] = by_shuffles;
  out[kLanes + threadIdx.x] = keel::warp_sum(values[threadIdx.x]);
}

__global__ void maxima(float* out, const float* values) { out[threadIdx.x] = keel::warp_max(values[threadIdx.x]); }

template <class T>
void check_sums() {
  std::vector<T> values(kLanes);
  for (int i = 0; i < kLanes; ++i) values[i] = std::sin(static_cast<T>(i)) * static_cast<T>(1 << i % 20);
  DeviceArray<T> in(values), out(2 * kLanes);
  ASSERT_EQ((Launch{1, kLanes}(sums<T>, out.data(), in.data())), cudaSuccess);
  const std::vector<T> got = out.host();
  const T exact = std::accumulate(values.begin(), values.end(), T{0});
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_EQ(got[i], got[kLanes + i]);
    EXPECT_NEAR(got[i], exact, std::abs(exact) * 1e-5 + 1);
  }
}

TEST_F(WarpTest, SumsOverAWarp) {
  in_all_orders([] {
    check_sums<float>();
    check_sums<double>();
  });
  std::vector<float> values(kLanes, -5);
  values[13] = 2;
  values[14] = NAN;  // fmaxf takes the number
  DeviceArray<float> in(values), out(kLanes);
  ASSERT_EQ((Launch{1, kLanes}(maxima, out.data(), in.data())), cudaSuccess);
  EXPECT_EQ(out.host(), std::vector<float>(kLanes, 2));
}

template <class T>
__global__ void block_sums(T* out, const T* values) {
  T both[2] = {values[threadIdx.x], 1};
  keel::block_sum(both);
  out[2 * threadIdx.x] = both[0];
  out[2 * threadIdx.x + 1] = both[1] + keel::block_sum(T(2));
}

TEST_F(WarpTest, SumsOverABlock) {
  in_all_orders([] {
    for (const int threads : {32, 96, 1024}) {
      std::vector<float> values(threads);
      std::iota(values.begin(), values.end(), 1);
      DeviceArray<float> in(values), out(2 * threads);
      ASSERT_EQ((Launch{1, static_cast<unsigned>(threads)}(block_sums<float>, out.data(), in.data())), cudaSuccess);
      const std::vector<float> got = out.host();
      for (int i = 0; i < threads; ++i) {
        EXPECT_EQ(got[2 * i], static_cast<float>(threads) * (threads + 1) / 2);  // whole numbers below 2^24
        EXPECT_EQ(got[2 * i + 1], 3 * threads);
      }
    }
  });
}

// ---- misuse

__global__ void wrong_width(int* out) { out[0] = __shfl_sync(0xffffffffU, 1, 0, 12); }
__global__ void not_in_mask(int* out) { out[0] = __shfl_sync(0xfffffffeU, 1, 0); }
__global__ void different_operations() {
  if (threadIdx.x < 16) {
    __syncwarp();
  } else {
    __ballot_sync(0xffffffffU, 1);
  }
}
__global__ void half_a_mma(float* out) {
  float d[4] = {};
  const unsigned a[4] = {}, b[2] = {};
  if (threadIdx.x >= 16) keel::mma_m16n8k16(d, a, b);
  out[0] = d[0];
}

TEST_F(WarpTest, MisuseBreaksTheDevice) {
  const std::pair<std::function<void(int*)>, const char*> cases[] = {
      {[](int* out) { Launch{1, 32}(wrong_width, out); }, "no power of two"},
      {[](int* out) { Launch{1, 32}(not_in_mask, out); }, "not in the mask"},
      {[](int*) { Launch{1, 32}(different_operations); }, "different operations"},
      {[](int* out) { Launch{1, 32}(half_a_mma, reinterpret_cast<float*>(out)); }, "all its 32 lanes"},
  };
  for (const auto& [run, text] : cases) {
    int* out = nullptr;
    ASSERT_EQ(cudaMalloc(&out, 4), cudaSuccess);
    run(out);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure) << text;
    EXPECT_NE(std::string(cudaGetErrorString(cudaErrorLaunchFailure)).find(text), std::string::npos)
        << cudaGetErrorString(cudaErrorLaunchFailure);
    EXPECT_NE(std::string(cudaGetErrorString(cudaErrorLaunchFailure)).find("block (0,0,0) thread ("), std::string::npos);
    cuda_on_cpu_reset();
  }
}

}  // namespace
}  // namespace cuda_on_cpu
