#include "keel/checkpoint/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace keel {
namespace {

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

TEST(Float16, EveryValueComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    ASSERT_TRUE(std::isnan(widen_f16(value)) || narrow_f16(widen_f16(value)) == value);
    ASSERT_TRUE(std::isnan(widen_bf16(value)) || narrow_bf16(widen_bf16(value)) == value);
    ASSERT_EQ(std::isnan(widen_f16(narrow_f16(widen_f16(value)))), std::isnan(widen_f16(value)));
    ASSERT_EQ(std::isnan(widen_bf16(narrow_bf16(widen_bf16(value)))), std::isnan(widen_bf16(value)));
  }
}

/// The neighbours of `value` in a 16-bit format with `narrow` and `widen`: the result is the nearest, ties to even.
template <class Narrow, class Widen>
void expect_nearest(float value, Narrow narrow, Widen widen) {
  const uint16_t found = narrow(value);
  const double error = std::abs(static_cast<double>(widen(found)) - value);
  for (int step : {-1, 1}) {
    const auto other = static_cast<uint16_t>(found + step);
    if (!std::isfinite(widen(other)) || std::signbit(widen(other)) != std::signbit(value)) continue;
    const double distance = std::abs(static_cast<double>(widen(other)) - value);
    ASSERT_TRUE(error < distance || (error == distance && found % 2 == 0)) << value;
  }
}

TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  // A walk over all binades with odd bits, and every tie between neighbouring halves.
  for (uint64_t word = 1; word < 0x47000000; word += 9973) {
    expect_nearest(std::bit_cast<float>(static_cast<uint32_t>(word)), narrow_f16, widen_f16);
    expect_nearest(-std::bit_cast<float>(static_cast<uint32_t>(word)), narrow_bf16, widen_bf16);
  }
  for (uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    expect_nearest((widen_f16(bits) + widen_f16(static_cast<uint16_t>(bits + 1))) / 2, narrow_f16, widen_f16);
  }
}

TEST(Float16, Ends) {
  EXPECT_EQ(narrow_f16(65504), 0x7BFF);
  EXPECT_EQ(narrow_f16(65519.996F), 0x7BFF);
  EXPECT_EQ(narrow_f16(65520), 0x7C00);
  EXPECT_EQ(narrow_f16(-INFINITY), 0xFC00);
  EXPECT_EQ(narrow_f16(0x1p-25F), 0) << "a tie with zero";
  EXPECT_EQ(narrow_f16(0x1.8p-25F), 1);
  EXPECT_EQ(narrow_f16(-0.0F), 0x8000);
  EXPECT_EQ(narrow_bf16(3.4e38F), 0x7F80);
  EXPECT_TRUE(same(widen_bf16(narrow_bf16(1.0F)), 1.0F));
}

}  // namespace
}  // namespace keel
