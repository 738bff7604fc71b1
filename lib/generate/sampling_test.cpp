#include "keel/generate/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "support/numeric.h"

namespace keel {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::optional<int32_t> sample_token(const std::vector<float>& logits, const SamplingOptions& options, double uniform) {
  return Sampler().draw(logits, options, uniform);
}

TEST(Sampling, GreedyTakesTheLargestAndOfEqualOnesTheLowestId) {
  const SamplingOptions greedy{.temperature = 0};
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 2, 3}, greedy, 0.9), 1);
}

TEST(Sampling, LogitsThatAreNotFiniteGiveNoToken) {
  for (const SamplingOptions& options : {SamplingOptions{.temperature = 0}, SamplingOptions{}}) {
    for (float broken : {kNaN, kInf, -kInf}) {
      EXPECT_FALSE(sample_token(std::vector<float>{-1, broken, -2}, options, 0.5)) << broken;
    }
    EXPECT_TRUE(sample_token(std::vector<float>{-1, -2}, options, 0.5));
  }
}

/// How often each id comes, over `draws` equally spaced values of `uniform`.
std::vector<double> frequencies(const std::vector<float>& logits, const SamplingOptions& options) {
  constexpr int kDraws = 100000;
  std::vector<double> counts(logits.size());
  Sampler sampler;
  for (int i = 0; i < kDraws; ++i) counts[sampler.draw(logits, options, (i + 0.5) / kDraws).value()] += 1.0 / kDraws;
  return counts;
}

TEST(Sampling, FrequenciesAreTheSoftmaxOfTheKept) {
  const std::vector<float> logits{std::log(4.0F), std::log(3.0F), std::log(2.0F), std::log(1.0F)};
  const auto expect = [&](const SamplingOptions& options, const std::vector<double>& wanted) {
    const std::vector<double> found = frequencies(logits, options);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 2e-5) << i;
  };
  expect({}, {0.4, 0.3, 0.2, 0.1});
  expect({.temperature = 0.5}, {16.0 / 30, 9.0 / 30, 4.0 / 30, 1.0 / 30});
  expect({.top_k = 2}, {4.0 / 7, 3.0 / 7, 0, 0});
  expect({.top_k = 9}, {0.4, 0.3, 0.2, 0.1});
  expect({.top_p = 0.65}, {4.0 / 7, 3.0 / 7, 0, 0});
  expect({.top_p = 0.75}, {4.0 / 9, 3.0 / 9, 2.0 / 9, 0});
  expect({.top_p = 1e-9}, {1, 0, 0, 0});
  expect({.top_k = 3, .top_p = 0.5}, {4.0 / 7, 3.0 / 7, 0, 0});  // 4/9 < 0.5 of the three
}

TEST(Sampling, TiesAtACutGoToTheLowerId) {
  const std::vector<float> logits{1, 2, 1, 1};
  const auto found = frequencies(logits, {.top_k = 2});
  EXPECT_GT(found[0], 0);
  EXPECT_EQ(found[2] + found[3], 0);
}

TEST(Sampling, LargeLogitsAndTinyTemperaturesStayFinite) {
  EXPECT_EQ(sample_token(std::vector<float>{3e38F, -3e38F, 3.3e38F}, {.temperature = 1e-6}, 0.5), 2);
  EXPECT_EQ(sample_token(std::vector<float>{0, 0}, {}, std::nextafter(1.0, 0.0)), 1);
}

/// A vocabulary of many blocks against plain sums in double: ids at equally spaced places, with and without cuts.
TEST(Sampling, ALargeVocabulary) {
  constexpr int64_t kVocabulary = 5003;
  const std::vector<float> logits = testing::Random(3).normals(kVocabulary, 0, 2);
  std::vector<int32_t> order(kVocabulary);
  std::iota(order.begin(), order.end(), 0);
  Sampler sampler;
  for (const SamplingOptions& options : {SamplingOptions{.temperature = 0.7},
                                         {.temperature = 1.3, .top_k = 700},
                                         {.top_p = 0.9},
                                         {.top_k = 2000, .top_p = 0.5},
                                         {.top_p = 0.01}}) {
    const bool cuts = options.top_k > 0 || options.top_p < 1;
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return cuts ? logits[a] > logits[b] : a < b; });
    const size_t most = options.top_k > 0 ? options.top_k : order.size();
    double total = 0, kept_sum = 0;
    const auto weight = [&](size_t i) { return std::exp(logits[order[i]] / options.temperature); };
    for (size_t i = 0; i < most; ++i) total += weight(i);
    size_t kept = 0;
    while (kept < most && (kept == 0 || kept_sum < options.top_p * total)) kept_sum += weight(kept++);
    constexpr int kDraws = 997;
    int wrong = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const double uniform = (draw + 0.5) / kDraws;
      double sum = 0;
      size_t i = 0;
      while ((sum += weight(i)) <= uniform * kept_sum) ++i;
      const double margin = std::min(sum - uniform * kept_sum, uniform * kept_sum - (sum - weight(i)));
      const bool is_close = margin < 1e-6 * kept_sum;  // where rounding decides
      wrong += sampler.draw(logits, options, uniform) == order[i] || is_close ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0) << options.temperature << " " << options.top_k << " " << options.top_p;
    std::iota(order.begin(), order.end(), 0);
  }
}

}  // namespace
}  // namespace keel
