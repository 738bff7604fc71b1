#include "keel/checkpoint/q8_0.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "keel/checkpoint/float16.h"
#include "support/numeric.h"

namespace keel {
namespace {

struct Quantised {
  std::vector<int8_t> values;
  std::vector<uint16_t> scales;
};

Quantised quantised(const std::vector<float>& row) {
  Quantised q{std::vector<int8_t>(row.size(), 99), std::vector<uint16_t>((row.size() + 31) / 32)};
  quantise_q8_0(row, q.values, q.scales);
  return q;
}

/// A block of a file that llama.cpp made from an fp32 one.
TEST(Q8, IsWhatGgmlWrites) {
  std::vector<float> row;
  for (const uint32_t word :
       {0xbcfc68a8U, 0xbcb81227U, 0xbd99a19eU, 0xbe0c43acU, 0xbf3dd705U, 0x3e24bc73U, 0x3d465ccdU, 0x3e3203e4U,
        0x3dea383fU, 0xbc88d890U, 0xbe094414U, 0x3dac32bcU, 0xbd2a2b05U, 0x3e2dd96fU, 0xbd7160e5U, 0xbdb63ea9U,
        0x3ebd090eU, 0xbdae0d98U, 0x3b93319dU, 0x3e41750fU, 0xbdf1a74fU, 0x3e2b85b9U, 0x3e0c2b39U, 0x3dacd657U,
        0xbe5dffe2U, 0x3d48da92U, 0xbea1d7c6U, 0x3e2b4f22U, 0x3e0d6773U, 0x3d8dd4a2U, 0xbe82af61U, 0xbe8e2fdfU}) {
    row.push_back(std::bit_cast<float>(word));
  }
  const Quantised q = quantised(row);
  EXPECT_EQ(q.scales, (std::vector<uint16_t>{0x1dfb}));
  EXPECT_EQ(q.values, (std::vector<int8_t>{-5, -4,  -13, -23, -127, 28, 8,  30, 20,  -3, -23, 14, -7, 29, -10, -15,
                                           63, -15, 1,   32,  -20,  29, 23, 14, -37, 8,  -54, 29, 24, 12, -44, -48}));
}

TEST(Q8, RoundsHalvesAwayFromZero) {
  std::vector<float> row{127, 0.5F, -0.5F, 1.5F, -2.5F, 0.49999997F, -0.49999997F, 126.5F, -126.5F, 0};
  const Quantised q = quantised(row);
  EXPECT_EQ(q.scales, (std::vector<uint16_t>{0x3C00}));
  EXPECT_EQ(q.values, (std::vector<int8_t>{127, 1, -1, 2, -3, 0, 0, 127, -127, 0}));
}

TEST(Q8, IsWithinHalfAStepInEachBlock) {
  for (const size_t n : {1U, 31U, 32U, 33U, 96U, 100U}) {
    std::vector<float> row = testing::Random(n).normals(static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) row[i] *= i < 32 ? 1e-3F : 50;
    const Quantised q = quantised(row);
    for (size_t begin = 0; begin < n; begin += 32) {
      double largest = 0;
      for (size_t i = begin; i < std::min(n, begin + 32); ++i) largest = std::max<double>(largest, std::abs(row[i]));
      const double d = largest / 127;
      // Half a step, and what rounding the scale to 11 bits, or to the smallest of fp16, moves 127 of them by.
      const double tolerance = d * 0.5001 + 127 * std::max(d * 0x1p-11, 0x1p-25);
      for (size_t i = begin; i < std::min(n, begin + 32); ++i) {
        EXPECT_LE(std::abs(widen_f16(q.scales[i / 32]) * q.values[i] - row[i]), tolerance) << i;
      }
    }
  }
}

/// A model from a file of q8_0, widened, comes back to the blocks of the file.
TEST(Q8, WhatIsRoundedAlreadyStaysTheSame) {
  for (int exponent = -15; exponent < 9; ++exponent) {
    std::vector<float> row = testing::Random(exponent + 20).normals(4096);
    for (float& x : row) x = std::ldexp(x, exponent);
    const Quantised once = quantised(row);
    for (size_t i = 0; i < row.size(); ++i) row[i] = widen_f16(once.scales[i / 32]) * once.values[i];
    const Quantised twice = quantised(row);
    EXPECT_EQ(twice.values, once.values);
    EXPECT_EQ(twice.scales, once.scales);
  }
}

TEST(Q8, SmallBlocksVanishAndOthersThanNumbersAreNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(quantised(std::vector<float>(32)).scales, (std::vector<uint16_t>{0}));
  EXPECT_EQ(quantised(std::vector<float>(32)).values, std::vector<int8_t>(32, 0));
  EXPECT_EQ(quantised({1e-38F, 1e-42F, -1e-40F}).scales, (std::vector<uint16_t>{0}));
  for (const float broken : {kInfinity, -kInfinity, kNaN}) {
    std::vector<float> row(64, 1);
    row[33] = broken;
    const Quantised q = quantised(row);
    EXPECT_FALSE(std::isnan(widen_f16(q.scales[0])));
    EXPECT_TRUE(std::isnan(widen_f16(q.scales[1]) * q.values[40]));
  }
}

}  // namespace
}  // namespace keel
