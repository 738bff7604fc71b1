#include "keel/kernels/common/vector_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "keel/kernels/common/isa.h"
#include "support/numeric.h"

namespace keel {
namespace {

// The loops that kernels write, for each instruction set (this file is compiled with fused multiply-add allowed, as
// they are).
#if defined(__x86_64__)
#define KEEL_TEST_TARGET(arch) [[gnu::target("arch=" arch)]]
#else
#define KEEL_TEST_TARGET(arch)
#endif
#define KEEL_TEST_LOOP(name, attribute, function)                                  \
  attribute void name(const std::vector<float>& x, std::vector<float>& y) {        \
    const float* from = x.data();                                                  \
    float* to = y.data();                                                          \
    const auto n = static_cast<int64_t>(x.size());                                 \
    _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) to[i] = function(from[i]); \
  }
KEEL_TEST_LOOP(exp_generic, , vector_exp)
KEEL_TEST_LOOP(exp_avx2, KEEL_TEST_TARGET("x86-64-v3"), vector_exp)
KEEL_TEST_LOOP(exp_avx512, KEEL_TEST_TARGET("x86-64-v4"), vector_exp)
KEEL_TEST_LOOP(sigmoid_generic, , vector_sigmoid)
KEEL_TEST_LOOP(sigmoid_avx2, KEEL_TEST_TARGET("x86-64-v3"), vector_sigmoid)
KEEL_TEST_LOOP(sigmoid_avx512, KEEL_TEST_TARGET("x86-64-v4"), vector_sigmoid)

using Loop = void (*)(const std::vector<float>&, std::vector<float>&);
struct Variant {
  Isa isa;
  Loop exp, sigmoid;
};
constexpr Variant kVariants[] = {{Isa::generic, exp_generic, sigmoid_generic},
                                 {Isa::avx2, exp_avx2, sigmoid_avx2},
                                 {Isa::avx512, exp_avx512, sigmoid_avx512}};

/// Distance of a float from the exact value in units in the last place of the latter; 0 where both overflow or are NaN.
double ulp_distance(float actual, double exact) {
  if (std::isnan(exact)) return std::isnan(actual) ? 0 : std::numeric_limits<double>::infinity();
  constexpr double kOverflow = 0x1.ffffffp127;  // from here on fp32 rounds to infinity
  if (exact >= kOverflow) return std::isinf(actual) && actual > 0 ? 0 : std::numeric_limits<double>::infinity();
  const double value = std::isinf(actual) ? std::copysign(0x1p128, actual) : actual;
  const int exponent = static_cast<int>(std::bit_cast<uint64_t>(exact) >> 52 & 0x7FF) - 1023;
  const int last_place = std::max(exponent - 23, -149);
  return std::abs(value - exact) * std::bit_cast<double>(static_cast<uint64_t>(1023 - last_place) << 52);
}

struct Worst {
  double ulp = 0;
  float at = 0;

  void take(double distance, float x) {
    if (distance <= ulp || std::isnan(ulp)) return;
    ulp = distance;
    at = x;
  }
};

/// Checks f over a sample of all bit patterns (every float that the stride hits, of both signs, infinities and NaNs
/// included) and, more densely, over [low, high].
template <class Exact>
void expect_within(Loop loop, Exact exact, double limit, float low, float high, const std::string& what) {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 2039)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  constexpr int64_t kDense = 1 << 20;
  for (int64_t i = 0; i <= kDense; ++i) {
    x.push_back(static_cast<float>(low + (static_cast<double>(high) - low) * static_cast<double>(i) / kDense));
  }
  std::vector<float> y(x.size());
  loop(x, y);
  Worst worst;
  for (size_t i = 0; i < x.size(); ++i) worst.take(ulp_distance(y[i], exact(static_cast<double>(x[i]))), x[i]);
  EXPECT_TRUE(worst.ulp <= limit) << what << " is " << worst.ulp << " ulp off at " << worst.at;
}

/// The worst of every float there is, for each variant that runs here.
template <class Exact>
std::vector<Worst> worst_of_all(const std::vector<Loop>& loops, Exact exact) {
  constexpr int64_t kBlock = 1 << 16, kBlocks = (int64_t{1} << 32) / kBlock;
  std::vector<Worst> all(loops.size());
#pragma omp parallel for schedule(dynamic)
  for (int64_t block = 0; block < kBlocks; ++block) {
    std::vector<float> x(kBlock), y(kBlock);
    std::vector<double> expected(kBlock);
    for (int64_t i = 0; i < kBlock; ++i) {
      x[i] = std::bit_cast<float>(static_cast<uint32_t>(block * kBlock + i));
      expected[i] = exact(static_cast<double>(x[i]));
    }
    for (size_t v = 0; v < loops.size(); ++v) {
      loops[v](x, y);
      Worst worst;
      for (int64_t i = 0; i < kBlock; ++i) worst.take(ulp_distance(y[i], expected[i]), x[i]);
#pragma omp critical
      all[v].take(worst.ulp, worst.at);
    }
  }
  return all;
}

template <class Exact>
void expect_all_within(Loop Variant::*loop, Exact exact, double limit, const char* what) {
  std::vector<Isa> isas;
  std::vector<Loop> loops;
  for (const Variant& v : kVariants) {
    if (!isa_available(v.isa)) continue;
    isas.push_back(v.isa);
    loops.push_back(v.*loop);
  }
  const std::vector<Worst> worst = worst_of_all(loops, exact);
  for (size_t i = 0; i < isas.size(); ++i) {
    std::printf("%s, %s: %.4f ulp at %a\n", what, isa_name(isas[i]), worst[i].ulp, static_cast<double>(worst[i].at));
    EXPECT_TRUE(worst[i].ulp <= limit) << what << ", " << isa_name(isas[i]);
  }
}

double exact_exp(double x) {
  return std::exp(x);
}
double exact_sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

std::vector<float> apply(Loop loop, std::vector<float> x) {
  std::vector<float> y(x.size());
  loop(x, y);
  return y;
}

TEST(VectorMath, ExpIsWithinTwoUlpEverywhere) {
  for (const Variant& v : kVariants) {
    if (!isa_available(v.isa)) continue;
    expect_within(v.exp, exact_exp, 2, -104, 89, std::string("exp, ") + isa_name(v.isa));
  }
}

TEST(VectorMath, SigmoidIsWithinThreeAndAHalfUlpEverywhere) {
  for (const Variant& v : kVariants) {
    if (!isa_available(v.isa)) continue;
    expect_within(v.sigmoid, exact_sigmoid, 3.5, -104, 20, std::string("sigmoid, ") + isa_name(v.isa));
  }
}

// Minutes of work, so only when asked for (CONTRIBUTING.md): all 2^32 floats.
TEST(VectorMath, DISABLED_EveryFloat) {
  expect_all_within(&Variant::exp, exact_exp, 2, "exp");
  expect_all_within(&Variant::sigmoid, exact_sigmoid, 3.5, "sigmoid");
}

TEST(VectorMath, EndsOfTheRange) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kLargestFinite = 0x1.62e42ep6F;  // exp of the next float overflows
  constexpr float kLastNonZero = -0x1.9fe368p6F;   // exp of the next float below rounds to 0
  for (const Variant& v : kVariants) {
    if (!isa_available(v.isa)) continue;
    SCOPED_TRACE(isa_name(v.isa));
    const auto e =
        apply(v.exp, {0.0F, -0.0F, kInfinity, -kInfinity, kLargestFinite, std::nextafter(kLargestFinite, kInfinity),
                      kLastNonZero, std::nextafter(kLastNonZero, -kInfinity), kNan, -kNan, 1e30F, -1e30F});
    EXPECT_EQ(e[0], 1);
    EXPECT_EQ(e[1], 1);
    EXPECT_EQ(e[2], kInfinity);
    EXPECT_EQ(e[3], 0);
    EXPECT_LT(e[4], kInfinity);
    EXPECT_EQ(e[5], kInfinity);
    EXPECT_EQ(e[6], 0x1p-149F);
    EXPECT_EQ(e[7], 0);
    EXPECT_TRUE(std::isnan(e[8]) && std::isnan(e[9]));
    EXPECT_EQ(e[10], kInfinity);
    EXPECT_EQ(e[11], 0);
    const auto s = apply(v.sigmoid, {0.0F, kInfinity, -kInfinity, kNan});
    EXPECT_EQ(s[0], 0.5F);
    EXPECT_EQ(s[1], 1);
    EXPECT_EQ(s[2], 0);
    EXPECT_TRUE(std::isnan(s[3]));
  }
}

TEST(VectorMath, UlpDistanceSeesWrongResults) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ulp_distance(1.0F, 1.0), 0);
  EXPECT_EQ(ulp_distance(0x1.000004p0F, 1.0), 2);
  EXPECT_EQ(ulp_distance(0.0F, 0x1p-149), 1);
  EXPECT_GT(ulp_distance(-1.0F, 1.0), 1e6);
  EXPECT_EQ(ulp_distance(std::numeric_limits<float>::quiet_NaN(), kInfinity), kInfinity);
  EXPECT_FALSE(ulp_distance(std::numeric_limits<float>::quiet_NaN(), 1.0) <= 1e9);
  EXPECT_GT(ulp_distance(std::numeric_limits<float>::infinity(), 1.0), 1e9);
}

}  // namespace
}  // namespace keel
