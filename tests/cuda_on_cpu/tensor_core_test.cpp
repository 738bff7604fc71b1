// mma and ldmatrix against plain loops over matrices, and bf16's rounding.

#include <cmath>

#include "keel/kernels/common/device.cuh"
#include "test_support.h"

namespace cuda_on_cpu {
namespace {

using TensorCoreTest = EmulationTest;

constexpr int kM = 16, kN = 8, kK = 16;

float at(const __nv_bfloat16* matrix, int i) { return __bfloat162float(matrix[i]); }

// Loads fragments as the PTX ISA's figures say, a row after the other: A [16][16], B [8 columns][16], C [16][8].
__global__ void multiply(float* C, const __nv_bfloat16* A, const __nv_bfloat16* B) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  const auto pair = [](const __nv_bfloat16* from) { return *reinterpret_cast<const unsigned*>(from); };
  const unsigned a[4] = {pair(A + g * kK + 2 * t), pair(A + (g + 8) * kK + 2 * t), pair(A + g * kK + 2 * t + 8),
                         pair(A + (g + 8) * kK + 2 * t + 8)};
  const unsigned b[2] = {pair(B + g * kK + 2 * t), pair(B + g * kK + 2 * t + 8)};
  float d[4] = {C[g * kN + 2 * t], C[g * kN + 2 * t + 1], C[(g + 8) * kN + 2 * t], C[(g + 8) * kN + 2 * t + 1]};
  keel::mma_m16n8k16(d, a, b);
  C[g * kN + 2 * t] = d[0];
  C[g * kN + 2 * t + 1] = d[1];
  C[(g + 8) * kN + 2 * t] = d[2];
  C[(g + 8) * kN + 2 * t + 1] = d[3];
}

TEST_F(TensorCoreTest, MmaIsAProduct) {
  std::vector<__nv_bfloat16> A(kM * kK), B(kN * kK);
  std::vector<float> C(kM * kN);
  for (int i = 0; i < kM * kK; ++i) A[i] = std::sin(1.0F + i);
  for (int i = 0; i < kN * kK; ++i) B[i] = std::cos(2.0F * i);
  for (int i = 0; i < kM * kN; ++i) C[i] = static_cast<float>(i % 7) - 3;
  in_all_orders([&] {
    DeviceArray<__nv_bfloat16> a(A), b(B);
    DeviceArray<float> c(C);
    ASSERT_EQ((Launch{1, 32}(multiply, c.data(), a.data(), b.data())), cudaSuccess);
    const std::vector<float> got = c.host();
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < kN; ++j) {
        double exact = C[i * kN + j], size = std::abs(exact);
        for (int k = 0; k < kK; ++k) {
          const double term = static_cast<double>(at(A.data(), i * kK + k)) * at(B.data(), j * kK + k);
          exact += term;
          size += std::abs(term);
        }
        const double tolerance = 4 * 0x1p-24 * (std::abs(exact) + std::sqrt(kK) * size);
        EXPECT_LE(std::abs(got[i * kN + j] - exact), tolerance) << i << " " << j;
      }
    }
  });
}

template <bool kTransposed>
__global__ void load(unsigned* out, const uint16_t* in, int stride) {
  auto* s = keel::dynamic_shared<uint16_t>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 32 * stride; i += 32) s[i] = in[i];
  __syncthreads();
  unsigned got[4];
  keel::ldmatrix_x4<kTransposed>(got, s + lane * stride);  // lane 8 i + r: row r of matrix i
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = got[i];
}

TEST_F(TensorCoreTest, LdmatrixDealsOutMatrices) {
  constexpr int kStride = 24;  // elements from row to row
  std::vector<uint16_t> values(32 * kStride);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 7919);
  in_all_orders([&] {
    for (const bool transposed : {false, true}) {
      DeviceArray<uint16_t> in(values);
      DeviceArray<unsigned> out(128);
      ASSERT_EQ((Launch{1, 32, values.size() * 2}(transposed ? load<true> : load<false>, out.data(), in.data(), kStride)),
                cudaSuccess);
      const std::vector<unsigned> got = out.host();
      for (int lane = 0; lane < 32; ++lane) {
        for (int matrix = 0; matrix < 4; ++matrix) {
          const auto element = [&](int row, int column) -> unsigned {
            return transposed ? values[(8 * matrix + column) * kStride + row] : values[(8 * matrix + row) * kStride + column];
          };
          const int g = lane / 4, t = lane % 4;
          EXPECT_EQ(got[4 * lane + matrix], element(g, 2 * t) | element(g, 2 * t + 1) << 16)
              << "lane " << lane << ", matrix " << matrix << ", transposed " << transposed;
        }
      }
    }
  });
}

__global__ void load_misaligned(unsigned* out) {
  KEEL_SHARED(float4, s, [40]);
  unsigned got[4];
  keel::ldmatrix_x4<false>(got, reinterpret_cast<char*>(&s[threadIdx.x]) + 2);
  out[threadIdx.x] = got[0];
}
__global__ void load_global(unsigned* out) {
  unsigned got[4];
  keel::ldmatrix_x4<false>(got, out);
  out[threadIdx.x] = got[0];
}

TEST_F(TensorCoreTest, LdmatrixIsChecked) {
  unsigned* out = nullptr;
  ASSERT_EQ(cudaMalloc(&out, 128), cudaSuccess);
  Launch{1, 32}(load_misaligned, out);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorMisalignedAddress);
  cuda_on_cpu_reset();
  ASSERT_EQ(cudaMalloc(&out, 128), cudaSuccess);
  Launch{1, 32}(load_global, out);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorInvalidAddressSpace);
}

// ---- bf16

TEST(Bfloat16, RoundsToTheNearestEven) {
  for (uint32_t high = 0; high < 0x10000; ++high) {
    const float exact = std::bit_cast<float>(high << 16);
    if (std::isnan(exact)) {
      EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(exact)), 0x7fff);
      continue;
    }
    EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(exact)), high);
    if (std::isinf(exact)) continue;
    const auto up = static_cast<unsigned short>(high + 1), here = static_cast<unsigned short>(high);
    const auto rounded = [&](uint32_t low) {
      return __bfloat16_as_ushort(__float2bfloat16_rn(std::bit_cast<float>(high << 16 | low)));
    };
    EXPECT_EQ(rounded(1), here);
    EXPECT_EQ(rounded(0x7fff), here);
    EXPECT_EQ(rounded(0x8000), high % 2 == 0 ? here : up);
    EXPECT_EQ(rounded(0x8001), up);
    EXPECT_EQ(rounded(0xffff), up);
    EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rz(std::bit_cast<float>(high << 16 | 0xffff))), here);
  }
}

TEST(Bfloat16, PairsAndArithmetic) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(1.5F, -2);
  EXPECT_EQ(__low2float(pair), 1.5F);
  EXPECT_EQ(__high2float(pair), -2);
  EXPECT_EQ(sizeof pair, 4U);
  EXPECT_EQ(alignof(__nv_bfloat162), 4U);
  const __nv_bfloat16 big = 256.0F, one = 1.0F;
  EXPECT_EQ(static_cast<float>(big + one), 256);  // 257 has nine digits: a tie, to even
  EXPECT_EQ(static_cast<float>(one / __nv_bfloat16(3.0F)), static_cast<float>(__nv_bfloat16(1.0F / 3)));
}

}  // namespace
}  // namespace cuda_on_cpu
