// Products of bf16 matrices on a device.

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "keel/kernels/common/bf16.h"
#include "keel/kernels/matmul/matmul_cuda.h"
#include "support/numeric.h"
#include "support/test_device.h"

namespace keel {
namespace {

using testing::Random;

/// Small integers, which bf16 holds exactly.
std::vector<Bf16> integers(Random& random, int64_t n) {
  std::vector<Bf16> v;
  for (int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<float>(random.integer(-7, 7));
    v.push_back({static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)});
  }
  return v;
}
double value(Bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
double value(float x) {
  return x;
}

/// With 0x1p-9 more than bf16 holds, to be rounded away.
std::vector<float> biases(Random& random, int64_t n) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<float>(random.integer(1, 7)) + 0x1p-9F);
  return v;
}
float bias_as(Bf16, float bias) {
  return bias - 0x1p-9F;
}
float bias_as(float, float bias) {
  return bias;
}

/// C = op(A) op(B) + bias and C += op(A) op(B) of exact products, rows of all three `pad` elements apart.
template <class Result>
void check(Context& ctx, MatmulShape s, int64_t pad) {
  const bool ta = transposes_a(s.transpose), tb = transposes_b(s.transpose);
  SCOPED_TRACE(std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) + ", transpose " +
               std::to_string(static_cast<int>(s.transpose)) + ", pad " + std::to_string(pad));
  s.a_stride = (ta ? s.m : s.k) + pad;
  s.b_stride = (tb ? s.k : s.n) + pad;
  s.c_stride = s.n + pad;
  Random random(3);
  const auto a = integers(random, (ta ? s.k : s.m) * s.a_stride), b = integers(random, (tb ? s.n : s.k) * s.b_stride);
  const std::vector<float> bias = biases(random, s.n);
  std::vector<Result> c(s.m * s.c_stride);
  const ElementType result = sizeof(Result) == 2 ? ElementType::bf16 : ElementType::fp32;
  cuda::matmul(ctx.queue(), {s, ElementType::bf16, result, true}, a.data(), b.data(), c.data(), bias.data());
  s.accumulate = true;
  cuda::matmul(ctx.queue(), {s, ElementType::bf16, result}, a.data(), b.data(), c.data(), nullptr);
  ctx.synchronize();
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.c_stride; ++j) {
      double exact = 0;
      for (int64_t l = 0; j < s.n && l < s.k; ++l) {
        exact += value(a[ta ? l * s.a_stride + i : i * s.a_stride + l]) *
                 value(b[tb ? j * s.b_stride + l : l * s.b_stride + j]);
      }
      // fp32 sums are exact; bf16 rounds the first of the two, and their sum.
      const double first = j < s.n ? exact + bias_as(Result(), bias[j]) : 0, expected = first + exact;
      const double tolerance = result == ElementType::bf16 ? 0x1p-8 * (std::abs(first) + std::abs(expected)) : 0;
      ASSERT_TRUE(testing::is_close(value(c[i * s.c_stride + j]), expected, tolerance)) << i << ", " << j;
    }
  }
}

TEST(DeviceMatmulBf16, ResultsInEitherType) {
  const auto device = testing::test_device();
  if (!device) GTEST_SKIP() << "of a GPU";
  Context ctx(*device, 1);
  for (Transpose transpose : {Transpose::none, Transpose::a, Transpose::b, Transpose::both}) {
    for (const int64_t pad : {0, 3, 8}) {
      check<float>(ctx, {64, 48, 96, transpose}, pad);
      check<Bf16>(ctx, {64, 48, 96, transpose}, pad);
      check<float>(ctx, {33, 17, 65, transpose}, pad);
      check<Bf16>(ctx, {1, 31, 7, transpose}, pad);
    }
  }
}

/// Products of 0: what is left is the bias as rounded to C, half up to even.
TEST(DeviceMatmulBf16, BiasIsRoundedOnce) {
  const auto device = testing::test_device();
  if (!device) GTEST_SKIP() << "of a GPU";
  Context ctx(*device, 1);
  constexpr int64_t m = 5, n = 24, k = 16;
  const std::vector<Bf16> a(m * k), b(n * k);
  std::vector<float> bias;
  for (int64_t i = 0; i < n; ++i) bias.push_back(1 + static_cast<float>(i) * 0x1p-8F);  // each second one is halfway
  std::vector<Bf16> c(m * n, Bf16{0x7FC0});
  const AnyView<const void, 2> A(a.data(), {m, k}), B(b.data(), {n, k});
  matmul(ctx, A, B, AnyView<void, 2>(c.data(), {m, n}), Transpose::b, false, {bias.data(), {n}});
  ctx.synchronize();
  for (int64_t i = 0; i < m * n; ++i) {
    const double steps = static_cast<double>(i % n) / 2;
    ASSERT_EQ(value(c[i]), 1 + std::nearbyint(steps) * 0x1p-7) << i;
  }
}

}  // namespace
}  // namespace keel
