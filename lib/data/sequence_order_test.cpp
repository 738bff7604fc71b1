#include "keel/data/sequence_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "keel/base/error.h"

namespace keel {
namespace {

std::vector<int64_t> permutation(uint64_t seed, int64_t epoch, int64_t n) {
  std::vector<int64_t> order(n);
  for (int64_t p = 0; p < n; ++p) order[p] = permute(seed, epoch, n, p);
  return order;
}

/// Each of 0 .. n-1 once.
bool is_bijection(const std::vector<int64_t>& order) {
  std::vector<char> seen(order.size(), 0);
  for (int64_t x : order) {
    if (x < 0 || x >= static_cast<int64_t>(order.size()) || seen[x]++) return false;
  }
  return true;
}

/// Upper limit of chi-squared with k degrees of freedom that chance passes once in 10^9 (Wilson, Hilferty 1931).
double chi_squared_limit(double k) {
  const double z = 6.0;
  return k * std::pow(1 - 2 / (9 * k) + z * std::sqrt(2 / (9 * k)), 3);
}

double chi_squared(const std::vector<int64_t>& counts, double expected) {
  double sum = 0;
  for (int64_t count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(SequenceOrder, EveryLengthIsABijection) {
  for (int64_t n = 1; n <= 300; ++n) {
    for (int64_t epoch : {0, 1, 5}) ASSERT_TRUE(is_bijection(permutation(n * 31, epoch, n))) << "n " << n;
  }
  for (int64_t n : {4095, 4096, 4097, 65535, 65536, 65537, 99991, 100000}) {
    ASSERT_TRUE(is_bijection(permutation(7, 3, n))) << "n " << n;
  }
}

TEST(SequenceOrder, HugeLengthsStayInside) {
  for (int64_t n : {int64_t{1} << 32, (int64_t{1} << 40) + 1, (int64_t{1} << 62) - 1, int64_t{1} << 62}) {
    for (int64_t p : {int64_t{0}, n / 3, n - 1}) {
      const int64_t x = permute(1, 0, n, p);
      EXPECT_GE(x, 0);
      EXPECT_LT(x, n);
    }
  }
}

TEST(SequenceOrder, IsAFunctionOfSeedEpochAndPosition) {
  EXPECT_EQ(permutation(1, 2, 100), permutation(1, 2, 100));
  EXPECT_NE(permutation(1, 2, 100), permutation(2, 2, 100));
  EXPECT_NE(permutation(1, 2, 100), permutation(1, 3, 100));
  EXPECT_NE(permutation(1, 2, 100), permutation(2, 1, 100));
}

/// Runs made today must read the same data when resumed by a later version.
TEST(SequenceOrder, StaysTheSameForever) {
  EXPECT_EQ(permutation(0, 0, 10), (std::vector<int64_t>{2, 3, 5, 6, 1, 7, 8, 0, 9, 4}));
  EXPECT_EQ(permutation(1234, 5, 10), (std::vector<int64_t>{8, 2, 9, 3, 7, 5, 6, 4, 0, 1}));
}

TEST(SequenceOrder, EveryPermutationIsEquallyLikely) {
  for (int n : {2, 3, 4, 5, 6, 7}) {
    std::vector<int64_t> first(n);
    std::iota(first.begin(), first.end(), 0);
    std::map<std::vector<int64_t>, int64_t> rank;
    auto each = first;
    do rank.emplace(each, static_cast<int64_t>(rank.size()));
    while (std::next_permutation(each.begin(), each.end()));
    std::vector<int64_t> counts(rank.size(), 0);
    const int64_t per_cell = 40;
    for (uint64_t seed = 0; seed < rank.size() * per_cell; ++seed) ++counts[rank.at(permutation(seed, 0, n))];
    EXPECT_LT(chi_squared(counts, per_cell), chi_squared_limit(counts.size() - 1.0)) << "n " << n;
  }
}

TEST(SequenceOrder, EveryPlaceIsEquallyLikely) {
  for (int64_t n : {7, 16, 24, 61, 64}) {
    const int64_t trials = 100 * n;
    std::vector<int64_t> counts(n * n, 0), pairs(n * n, 0);
    for (int64_t epoch = 0; epoch < trials; ++epoch) {
      const auto order = permutation(99, epoch, n);
      for (int64_t p = 0; p < n; ++p) {
        ++counts[p * n + order[p]];
        ++pairs[order[p] * n + order[(p + 1) % n]];  // who follows whom
      }
    }
    const double limit = chi_squared_limit((n - 1.0) * (n - 1.0));
    EXPECT_LT(chi_squared(counts, trials / static_cast<double>(n)), limit) << "n " << n;
    for (int64_t x = 0; x < n; ++x) {
      ASSERT_EQ(pairs[x * n + x], 0);
      pairs[x * n + x] = std::llround(trials / (n - 1.0));  // never follows itself: leave those cells out
    }
    EXPECT_LT(chi_squared(pairs, trials / (n - 1.0)), chi_squared_limit(n * (n - 1.0))) << "n " << n;
  }
}

TEST(SequenceOrder, LongOrdersLookRandom) {
  const int64_t n = 100000;
  const auto order = permutation(5, 0, n);
  int64_t rising = 0, fixed = 0;
  double product = 0;
  for (int64_t p = 0; p < n; ++p) {
    fixed += order[p] == p;
    if (p > 0) rising += order[p] > order[p - 1];
    product += (p - (n - 1) / 2.0) * (order[p] - (n - 1) / 2.0);
  }
  const double variance = (static_cast<double>(n) * n - 1) / 12;
  EXPECT_NEAR(product / (n * variance), 0, 6 / std::sqrt(n));         // correlation with the position
  EXPECT_NEAR(rising, (n - 1) / 2.0, 6 * std::sqrt((n + 1) / 12.0));  // ascents of a random permutation
  EXPECT_LE(fixed, 15);                                               // Poisson of mean 1
}

TEST(SequenceOrder, EpochsFollowOneAnother) {
  const SequenceOrder order(6, true, 3);
  for (int64_t position = 0; position < 30; ++position) {
    EXPECT_EQ(order.at(position), permute(3, position / 6, 6, position % 6));
  }
  const SequenceOrder plain(4, false, 3);
  for (int64_t position = 0; position < 9; ++position) EXPECT_EQ(plain.at(position), position % 4);
  EXPECT_THROW(SequenceOrder(0, true, 0), Error);
}

/// Every place of every source once, in order, and counts near their share at every position.
void check_mixture(const std::vector<double>& weights, int64_t positions) {
  const Mixture mixture(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> next(weights.size(), 0);
  for (int64_t p = 0; p < positions; ++p) {
    const MixturePlace place = mixture.at(p);
    ASSERT_EQ(place.position, next[place.source]++) << "position " << p;
    for (size_t k = 0; k < weights.size(); ++k) {
      ASSERT_LT(std::abs(next[k] - (p + 1) * weights[k] / sum), weights.size()) << "position " << p << " source " << k;
    }
  }
}

TEST(Mixture, DealsByWeight) {
  check_mixture({1}, 50);
  check_mixture({1, 1}, 1000);
  check_mixture({0.7, 0.3}, 5000);
  check_mixture({0, 1, 0}, 100);
  check_mixture({1, 0, 0}, 100);
  check_mixture({0.05, 3, 0.3, 1e-3, 7, 1, 1}, 20000);
}

TEST(Mixture, IsExactFarOut) {
  const Mixture mixture({0.1, 0.2, 0.7});
  const int64_t far = int64_t{1} << 55;
  std::array<int64_t, 3> next{-1, -1, -1};
  for (int64_t p = far; p < far + 2000; ++p) {
    const MixturePlace place = mixture.at(p);
    if (next[place.source] >= 0) {
      ASSERT_EQ(place.position, next[place.source]);
    }
    next[place.source] = place.position + 1;
  }
}

TEST(Mixture, RefusesWhatIsNoWeight) {
  EXPECT_THROW(Mixture({}), Error);
  EXPECT_THROW(Mixture({0, 0}), Error);
  EXPECT_THROW(Mixture({1, -1}), Error);
  EXPECT_THROW(Mixture({1, NAN}), Error);
  EXPECT_THROW(Mixture({1, INFINITY}), Error);
}

}  // namespace
}  // namespace keel
