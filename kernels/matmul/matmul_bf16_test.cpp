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

/// C = op(A) op(B) of exact products, rows of all three `pad` elements apart.
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
  std::vector<Result> c(s.m * s.c_stride);
  const ElementType result = sizeof(Result) == 2 ? ElementType::bf16 : ElementType::fp32;
  cuda::matmul(ctx.queue(), {s, ElementType::bf16, result}, a.data(), b.data(), c.data());
  s.accumulate = true;
  cuda::matmul(ctx.queue(), {s, ElementType::bf16, result}, a.data(), b.data(), c.data());
  ctx.synchronize();
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.c_stride; ++j) {
      double exact = 0;
      for (int64_t l = 0; j < s.n && l < s.k; ++l) {
        exact += value(a[ta ? l * s.a_stride + i : i * s.a_stride + l]) *
                 value(b[tb ? j * s.b_stride + l : l * s.b_stride + j]);
      }
      // fp32 sums are exact; bf16 rounds the first of the two, and their sum.
      const double tolerance = result == ElementType::bf16 ? 2 * 0x1p-8 * std::abs(2 * exact) : 0;
      ASSERT_TRUE(testing::is_close(value(c[i * s.c_stride + j]), 2 * exact, tolerance)) << i << ", " << j;
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

}  // namespace
}  // namespace keel
