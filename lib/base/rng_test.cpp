#include "keel/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace keel {
namespace {

using Words = std::array<uint32_t, 4>;

// Random123 1.14, tests/kat_vectors, "philox4x32 10".
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, PlacesAreSeedStreamAndIndex) {
  EXPECT_EQ(random_words(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(random_bits(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88), 0x94fdccebd16cfe09U);
}

// Vigna's splitmix64.c started at 0 and at 1234567: first outputs.
TEST(Splitmix, KnownAnswers) {
  EXPECT_EQ(splitmix64(0), 0xE220A8397B1DCDAFU);
  EXPECT_EQ(splitmix64(1234567), 6457827717110365317U);
}

TEST(DeriveSeed, DiffersByPurposeAndSeed) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const char* purpose : {"", "a", "b", "ab", "ba", "init", "shuffle"}) seeds.insert(derive_seed(seed, purpose));
  }
  EXPECT_EQ(seeds.size(), 700U);
  EXPECT_EQ(derive_seed(1, "init"), derive_seed(1, "init"));
}

TEST(Uniform, LiesInTheHalfOpenUnitInterval) {
  double sum = 0;
  constexpr int kCount = 100'000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double u = uniform(7, 0, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  // The mean's deviation is 1 / sqrt(12 n); six of them.
  EXPECT_NEAR(sum / kCount, 0.5, 6 / std::sqrt(12.0 * kCount));
}

TEST(UniformBelow, ReachesEveryValueEquallyOften) {
  constexpr int kValues = 7;
  constexpr int kCount = 70'000;
  std::vector<int> counts(kValues);
  for (uint64_t i = 0; i < kCount; ++i) ++counts.at(uniform_below(3, 1, i, kValues));
  const double mean = static_cast<double>(kCount) / kValues;
  for (const int count : counts) EXPECT_NEAR(count, mean, 6 * std::sqrt(mean));
  EXPECT_EQ(uniform_below(3, 1, 0, 1), 0U);
}

TEST(NormalPair, HasTheMomentsOfANormalDistribution) {
  constexpr int kCount = 200'000;
  double sum = 0, squares = 0, fourth = 0, product = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const auto [a, b] = normal_pair(5, 9, i);
    ASSERT_TRUE(std::isfinite(a) && std::isfinite(b));
    sum += a + b;
    squares += a * a + b * b;
    fourth += a * a * a * a + b * b * b * b;
    product += a * b;
  }
  // Six standard deviations of each estimate: var(z) = 1, var(z^2) = 2, var(z^4) = 96, var(ab) = 1.
  constexpr double kValues = 2.0 * kCount;
  EXPECT_NEAR(sum / kValues, 0, 6 / std::sqrt(kValues));
  EXPECT_NEAR(squares / kValues, 1, 6 * std::sqrt(2 / kValues));
  EXPECT_NEAR(fourth / kValues, 3, 6 * std::sqrt(96 / kValues));
  EXPECT_NEAR(product / kCount, 0, 6 / std::sqrt(kCount));
}

TEST(FillNormal, AnySplitGivesTheSameValues) {
  std::vector<float> whole(101);
  fill_normal(11, 4, 0, 0.02, whole);
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    std::vector<float> parts(whole.size());
    const std::span<float> all(parts);
    fill_normal(11, 4, 0, 0.02, all.first(cut));
    fill_normal(11, 4, static_cast<int64_t>(cut), 0.02, all.subspan(cut));
    ASSERT_EQ(parts, whole) << cut;
  }
  EXPECT_EQ(whole[0], static_cast<float>(0.02 * normal_pair(11, 4, 0)[0]));
  EXPECT_EQ(whole[3], static_cast<float>(0.02 * normal_pair(11, 4, 1)[1]));
}

}  // namespace
}  // namespace keel
