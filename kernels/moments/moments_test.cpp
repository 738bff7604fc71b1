#include "keel/kernels/moments/moments.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/moments/moments_cpu.h"
#include "keel/kernels/moments/moments_ref.h"
#include "support/contexts.h"
#include "support/guarded_matrix.h"
#include "support/magnitude.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::Guarded;
using testing::GuardedMatrix;
using testing::Magnitude;
using testing::Random;
using testing::widen;

constexpr double kUnitFp64 = 0x1p-53;

struct Case {
  int64_t rows, d;
  int64_t pad = 0, misalign = 0;
  double mean = 0;
  int64_t skew = 1;  ///< by how much the matrices differ in stride and start
};
/// Rows of which a device can take four columns at a time.
Case in_fours(int64_t rows, int64_t d) {
  return {.rows = rows, .d = d, .skew = 0};
}
// Chunks of many rows, of one row, of pieces of a row; ends of chunks and rows that meet and that do not.
const Case kCases[] = {{1, 1},
                       {3, 15, 2, 1},
                       {300, 1, 4},
                       {kMomentsChunk / 64, 64, 0, 3},
                       {kMomentsChunk / 64 + 1, 64},
                       {131, 257, 7, 1},
                       {1, kMomentsChunk - 1},
                       {1, 3 * kMomentsChunk + 17},
                       {2, 2 * kMomentsChunk + 1, 5},
                       {100, 331, 0, 0, 1e4},
                       in_fours(64, 260),
                       {.rows = 300, .d = 64, .pad = 4, .skew = 0},
                       in_fours(1, 3 * kMomentsChunk + 20)};

std::string name_of(const Case& c) {
  return std::to_string(c.rows) + " x " + std::to_string(c.d);
}

std::vector<double> run(Context& ctx, const Case& c, const std::vector<float>& x_values,
                        const std::vector<float>* y_values, const std::vector<double>& start) {
  GuardedMatrix x(c.rows, c.d, x_values, c.pad, c.misalign), y(c.rows, c.d, c.pad + 2 * c.skew, c.misalign + c.skew);
  if (y_values != nullptr) y.assign(*y_values);
  Guarded<double> sums(3), partial(3 * chunk_count(c.rows * c.d, kMomentsChunk), 1);
  sums.assign(start);
  moments(ctx, x.view(), y_values != nullptr ? y.view() : View<const float, 2>(), {sums.get(), {3}},
          {partial.get(), {partial.size() / 3, 3}});
  EXPECT_TRUE(sums.intact() && partial.intact());
  return sums.values();
}

TEST(Moments, AgreeWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const int64_t size = c.rows * c.d;
    Random random(static_cast<uint64_t>(7919 * c.rows + c.d));
    const auto x = random.normals(size, c.mean), y = random.normals(size, -c.mean, 3);
    auto exact = reference::moments(widen<long double>(x), widen<long double>(y));
    const auto terms = reference::moments(widen<Magnitude>(x), widen<Magnitude>(y));
    const std::vector<double> start = {0.5, -1.5, 2.5};
    for (size_t i = 0; i < 3; ++i) exact[i] += start[i];
    const double relative = 4 * (1 + std::sqrt(static_cast<double>(size))) * kUnitFp64;
    for_each_context([&](Context& ctx) {
      const auto found = run(ctx, c, x, &y, start);
      testing::expect_close(
          found, exact, [&](int64_t i) { return relative * (std::abs(start[i]) + terms[i].value()); }, "sums");
      const auto alone = run(ctx, c, x, nullptr, start);
      EXPECT_TRUE(testing::is_close(alone[0], static_cast<double>(exact[0]), relative * (0.5 + terms[0].value())));
      EXPECT_EQ(std::vector(alone.begin() + 1, alone.end()), std::vector(start.begin() + 1, start.end()));
      Context one = testing::single_threaded(ctx);
      EXPECT_EQ(run(one, c, x, &y, start), found) << "one thread";
      EXPECT_EQ(run(one, c, x, nullptr, start), alone) << "one thread";
    });
  }
}

TEST(Moments, SumsOfIntegersAreExact) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    Random random(5);
    std::vector<float> x, y;
    for (int64_t i = 0; i < c.rows * c.d; ++i) {
      x.push_back(static_cast<float>(random.integer(-4096, 4096)));
      y.push_back(static_cast<float>(random.integer(1, 9)));
    }
    const auto exact = reference::moments(widen<double>(x), widen<double>(y));
    for_each_context([&](Context& ctx) {
      EXPECT_EQ(run(ctx, c, x, &y, {0, 0, 0}), std::vector<double>(exact.begin(), exact.end()));
      EXPECT_EQ(run(ctx, c, x, nullptr, {0, 0, 0}), (std::vector<double>{exact[0], 0, 0}));
    });
  }
}

TEST(Moments, SquaresBeyondFloatsAndOfItself) {
  for_each_context([&](Context& ctx) {
    std::vector<float> x = {0x1p100F, -0x1p100F, 0x1p-100F};
    std::vector<double> sums(3), partial(3);
    const View<const float, 2> view(x.data(), {1, 3});
    moments(ctx, view, view, {sums.data(), {3}}, {partial.data(), {1, 3}});
    EXPECT_EQ(sums, std::vector<double>(3, 0x1p201));
  });
}

TEST(Moments, NothingToDo) {
  for_each_context([&](Context& ctx) {
    std::vector<double> sums = {1, 2, 3};
    moments(ctx, View<const float, 2>(nullptr, {0, 8}), {}, {sums.data(), {3}}, View<double, 2>(nullptr, {0, 3}));
    log_sum(ctx, View<const float, 1>(nullptr, {0}), {sums.data(), {1}});
    EXPECT_EQ(sums, (std::vector<double>{1, 2, 3}));
  });
}

TEST(Moments, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> memory(64);
  std::vector<double> doubles(8);
  const View<const float, 2> x(memory.data(), {2, 8}), other(memory.data(), {1, 8});
  const View<double, 1> sums(doubles.data(), {3});
  const View<double, 2> partial(doubles.data(), {1, 3});
  EXPECT_THROW(moments(ctx, x, other, sums, partial), Error);
  EXPECT_THROW(moments(ctx, x, x, {doubles.data(), {2}}, partial), Error);
  EXPECT_THROW(moments(ctx, x, x, sums, {doubles.data(), {2, 3}}), Error);
  EXPECT_THROW(moments(ctx, x, x, sums, {doubles.data(), {1, 3}, {3, 2}}), Error);
  EXPECT_THROW(log_sum(ctx, {memory.data(), {3}}, {doubles.data(), {2}}), Error);
  EXPECT_THROW(log_sum(ctx, {memory.data(), {3}, {2}}, {doubles.data(), {1}}), Error);
}

TEST(LogSum, AgreesWithTheReference) {
  for (int64_t n : {int64_t{1}, int64_t{7}, kLogSumChunk - 1, kLogSumChunk, kLogSumChunk + 1, 5 * kLogSumChunk + 3}) {
    SCOPED_TRACE("size " + std::to_string(n));
    Random random(static_cast<uint64_t>(n));
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(std::exp(random.uniform(-12, 6))));
    for (int64_t i = 0; i < n; i += 3) values[i] = -values[i];
    values[0] = 0x1p-140F;  // subnormal
    long double exact = 2.5L + reference::log_sum(widen<long double>(values));
    double magnitudes = 2.5;
    for (float v : values) magnitudes += std::abs(std::log(std::abs(static_cast<double>(v))));
    double first = 0;
    for_each_context([&](Context& ctx) {
      Guarded<float> r(n, n % 5);
      r.assign(values);
      double sum = 2.5;
      log_sum(ctx, {r.get(), {n}}, {&sum, {1}});
      EXPECT_TRUE(testing::is_close(sum, static_cast<double>(exact),
                                    4 * (3 + std::sqrt(static_cast<double>(n))) * kUnitFp64 * magnitudes))
          << sum << ", expected " << static_cast<double>(exact);
      if (first == 0) first = sum;
      EXPECT_EQ(sum, first) << "the same bits for any threads and instruction set";
    });
  }
}

}  // namespace
}  // namespace keel
