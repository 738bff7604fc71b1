#include "keel/kernels/linear/linear.h"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/linear/linear_ref.h"
#include "support/complex_step.h"
#include "support/contexts.h"
#include "support/errors.h"
#include "support/guarded_matrix.h"
#include "support/magnitude.h"
#include "support/product_bits.h"
#include "support/weights.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::GuardedMatrix;
using testing::kWeightTypes;
using testing::Magnitude;
using testing::Random;
using testing::RandomWeights;
using testing::widen;

/// Rows of X, and a [out, in] matrix.
struct Case {
  int64_t N, in, out;
  int64_t pad = 0, misalign = 0;
};
/// One row and few; more than go by the kernels here; columns around vectors, scales and panels.
const Case kCases[] = {
    {1, 1, 1},    {1, 7, 3, 1, 1},   {1, 16, 4},          {1, 31, 5},      {1, 33, 9, 3, 1},   {1, 64, 130},
    {1, 65, 6},   {1, 96, 7},        {1, 2047, 3},        {1, 2049, 5},    {1, 4200, 2},       {2, 65, 7, 5, 3},
    {3, 40, 9},   {4, 128, 5, 0, 1}, {5, 63, 4},          {8, 2080, 3},    {11, 130, 5, 1, 1}, {12, 72, 33},
    {13, 72, 33}, {13, 1, 1},        {40, 65, 130, 3, 1}, {33, 2049, 300}, {1, 320, 700},      {2, 1030, 257},
    {14, 0, 3},   {1, 0, 2}};

TEST(LinearReference, BackwardIsTheComplexStepOfForward) {
  for (const WeightType type : kWeightTypes) {
    const RandomWeights W(type, 5, 37, 3);
    const auto x = widen<double>(Random(1).normals(2 * 37)), dy = widen<double>(Random(2).normals(2 * 5));
    const auto backward = reference::linear_backward(dy, 2, W.matrix());
    const auto stepped = testing::complex_step_gradient(x, [&](const std::vector<std::complex<double>>& at) {
      const auto y = reference::linear(at, 2, W.matrix());
      std::complex<double> sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
      return sum;
    });
    testing::expect_same_gradient(backward, stepped, "dx");
  }
}

TEST(Linear, IsTheReference) {
  for (const WeightType type : kWeightTypes) {
    for (const Case& c : kCases) {
      SCOPED_TRACE("type " + std::to_string(static_cast<int>(type)) + ", " + std::to_string(c.N) + " x " +
                   std::to_string(c.in) + " -> " + std::to_string(c.out));
      const RandomWeights W(type, c.out, c.in, 7, c.misalign);
      const std::vector<float> x = Random(9).normals(c.N * c.in);
      const auto expected = reference::linear(widen<double>(x), c.N, W.matrix());
      const auto terms = reference::linear(widen<Magnitude>(x), c.N, W.matrix());
      for_each_context([&](Context& ctx) {
        GuardedMatrix X(c.N, c.in, x, c.pad, c.misalign), Y(c.N, c.out, c.pad, c.misalign);
        linear(ctx, X.view(), W.matrix(), Y.view());
        ctx.synchronize();
        testing::expect_close(
            Y.values(), expected,
            [&](int64_t i) { return testing::sum_tolerance(expected[i], c.in + 1, terms[i].value()); }, "Y");
        EXPECT_TRUE(Y.intact());
      });
    }
  }
}

TEST(Linear, Bias) {
  for (const WeightType type : kWeightTypes) {
    for (const Case& c : kCases) {
      SCOPED_TRACE("type " + std::to_string(static_cast<int>(type)) + ", " + std::to_string(c.N) + " x " +
                   std::to_string(c.in) + " -> " + std::to_string(c.out));
      const RandomWeights W(type, c.out, c.in, 7, c.misalign);
      const std::vector<float> x = Random(9).normals(c.N * c.in), bias = Random(10).normals(c.out);
      const auto expected = reference::linear(widen<double>(x), c.N, W.matrix(), widen<double>(bias));
      const auto terms = reference::linear(widen<Magnitude>(x), c.N, W.matrix(), widen<Magnitude>(bias));
      for_each_context([&](Context& ctx) {
        GuardedMatrix X(c.N, c.in, x, c.pad, c.misalign), Y(c.N, c.out, c.pad, c.misalign);
        linear(ctx, X.view(), W.matrix(), Y.view(), 0, {bias.data(), {c.out}});
        ctx.synchronize();
        testing::expect_close(
            Y.values(), expected,
            [&](int64_t i) { return testing::sum_tolerance(expected[i], c.in + 2, terms[i].value()); }, "Y");
        EXPECT_TRUE(Y.intact());
      });
    }
  }
}

TEST(Linear, FewRowsAreTheSameForAnyNumberOfThreads) {
  for (const WeightType type : kWeightTypes) {
    for (const int64_t N : {1, 3, 12}) {
      const RandomWeights W(type, 517, 330, 11);
      std::vector<float> x = Random(N).normals(N * 330), y[3];
      for (int threads = 1; threads <= 3; ++threads) {
        Context ctx = testing::test_context(threads);
        y[threads - 1].resize(N * 517);
        linear(ctx, View<const float, 2>(x.data(), {N, 330}), W.matrix(), {y[threads - 1].data(), {N, 517}});
      }
      EXPECT_EQ(y[0], y[1]);
      EXPECT_EQ(y[0], y[2]);
    }
  }
}

/// A block of a large batch gets the bits that it has in the whole.
TEST(Linear, BlocksOfABatchAreTheSame) {
  if (testing::test_device()) GTEST_SKIP() << "of a CPU";
  KEEL_SKIP_UNLESS_PRODUCTS_ARE_ALIKE();
  const RandomWeights W(WeightType::fp32, 65, 48, 5);
  const std::vector<float> x = Random(4).normals(130 * 48);
  std::vector<float> whole(130 * 65), blocks(130 * 65);
  Context ctx = testing::test_context(1);
  const View<const float, 2> X(x.data(), {130, 48});
  const View<float, 2> Y(whole.data(), {130, 65}), Z(blocks.data(), {130, 65});
  linear(ctx, X, W.matrix(), Y);
  for (const auto& [begin, end] : {std::pair{0, 64}, {64, 128}, {128, 130}}) {
    linear(ctx, X.slice(begin, end), W.matrix(), Z.slice(begin, end), 130);
  }
  EXPECT_EQ(whole, blocks);
}

/// As large as to be widened in parts on any device.
TEST(Linear, ManyBlocksOfWeights) {
  constexpr int64_t kIn = 33'000, kOut = 300, kRows = 13;
  std::vector<uint16_t> halves;
  for (int64_t o = 0; o < kOut; ++o) {
    halves.insert(halves.end(), kIn, static_cast<uint16_t>(o % 3 == 0 ? 0x3F80 : 0x4000));  // 1 or 2
  }
  std::vector<float> x(kRows * kIn), y(kRows * kOut), sums(kRows);
  for (int64_t i = 0; i < kRows * kIn; ++i) {
    x[i] = static_cast<float>(i % 7 - 2);
    sums[i / kIn] += x[i];
  }
  Context ctx = testing::test_context(2);
  linear(ctx, View<const float, 2>(x.data(), {kRows, kIn}), {WeightType::bf16, kOut, kIn, halves.data()},
         {y.data(), {kRows, kOut}});
  for (int64_t i = 0; i < kRows * kOut; ++i) {
    ASSERT_EQ(y[i], sums[i / kOut] * (i % kOut % 3 == 0 ? 1.0F : 2.0F)) << i;
  }
}

/// Within the context of one thread of several, as blocks of rows run.
TEST(Linear, RunsInTheContextOfAThread) {
  if (testing::test_device()) GTEST_SKIP() << "of a CPU";
  const RandomWeights W(WeightType::q8_0, 70, 64, 5);
  const std::vector<float> x = Random(4).normals(20 * 64);
  std::vector<float> whole(20 * 70), part(20 * 70);
  Context ctx = testing::test_context(3);
  linear(ctx, View<const float, 2>(x.data(), {20, 64}), W.matrix(), {whole.data(), {20, 70}});
  linear(ctx.worker(2), View<const float, 2>(x.data(), {20, 64}), W.matrix(), {part.data(), {20, 70}});
  const auto expected = reference::linear(widen<double>(x), 20, W.matrix());
  const auto terms = reference::linear(widen<Magnitude>(x), 20, W.matrix());
  const auto tolerance = [&](int64_t i) { return testing::sum_tolerance(expected[i], 65, terms[i].value()); };
  testing::expect_close(whole, expected, tolerance, "by all");
  testing::expect_close(part, expected, tolerance, "by one");
}

/// What is not finite shows where its row is, and nowhere else.
TEST(Linear, ProfilesCountWidenedWeightsOnce) {
  constexpr int64_t kIn = 96, kOut = 200, kRows = 40;
  const std::vector<uint16_t> weights(kOut * kIn, 0x3F80);
  const std::vector<float> x(kRows * kIn, 1);
  std::vector<float> y(kRows * kOut);
  for (const int threads : {1, 2}) {
    Context ctx = testing::test_context(threads);
    OperationProfile profile;
    ctx.set_profile(&profile);
    linear(ctx, {x.data(), {kRows, kIn}}, {WeightType::bf16, kOut, kIn, weights.data()}, {y.data(), {kRows, kOut}});
    const auto totals = profile.totals();
    EXPECT_EQ(totals.at("product").flops, 2.0 * kRows * kIn * kOut) << threads;
    EXPECT_EQ(totals.at("cast").bytes, (2.0 + 4.0) * kIn * kOut) << threads;
    ctx.set_profile(nullptr);
  }
}

TEST(Linear, WeightsThatAreNotFinite) {
  constexpr int64_t kOut = 9, kIn = 70;
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> plain(kOut * kIn, 1);
  std::vector<uint16_t> halves(kOut * kIn, 0x3F80), scales(kOut * 3, 0x3C00);
  const std::vector<int8_t> values(kOut * kIn, 1);
  plain[4 * kIn + 69] = infinity;
  halves[4 * kIn + 69] = 0x7F80;
  scales[4 * 3 + 2] = 0x7E00;
  for (const WeightMatrix& W : {WeightMatrix(WeightType::fp32, kOut, kIn, plain.data()),
                                WeightMatrix(WeightType::bf16, kOut, kIn, halves.data()),
                                WeightMatrix(WeightType::q8_0, kOut, kIn, values.data(), scales.data())}) {
    for (const int64_t N : {1, 2, 8, 12, 40}) {
      const std::vector<float> x(N * kIn, 1);
      for_each_context([&](Context& ctx) {
        std::vector<float> y(N * kOut);
        linear(ctx, {x.data(), {N, kIn}}, W, {y.data(), {N, kOut}});
        for (int64_t i = 0; i < N * kOut; ++i) EXPECT_EQ(y[i] == kIn, i % kOut != 4) << i;
        EXPECT_FALSE(std::isfinite(y[4]));
      });
    }
  }
}

TEST(Linear, NothingToDo) {
  Context ctx = testing::test_context(2);
  const RandomWeights none(WeightType::bf16, 0, 4, 1), some(WeightType::q8_0, 3, 4, 1);
  std::vector<float> x(8), y(8, 5);
  linear(ctx, View<const float, 2>(x.data(), {2, 4}), none.matrix(), {y.data(), {2, 0}});
  linear(ctx, View<const float, 2>(nullptr, {0, 4}), some.matrix(), {nullptr, {0, 3}});
  EXPECT_EQ(y, std::vector<float>(8, 5));
}

TEST(Linear, ExtentsThatDisagreeAreAnError) {
  Context ctx = testing::test_context(1);
  const RandomWeights W(WeightType::q8_0, 3, 4, 1);
  std::vector<float> x(8), y(8);
  const View<const float, 2> X(x.data(), {2, 4});
  const View<float, 2> Y(y.data(), {2, 3});
  testing::expect_error(ErrorKind::shape, "X is [2, 3], not [2, 4]",
                        [&] { linear(ctx, X.columns(0, 3), W.matrix(), Y); });
  testing::expect_error(ErrorKind::shape, "Y is [2, 2], not [2, 3]",
                        [&] { linear(ctx, X, W.matrix(), Y.columns(0, 2)); });
  testing::expect_error(ErrorKind::shape, "Y is [2, 3], not [1, 3]",
                        [&] { linear(ctx, X.slice(0, 1), W.matrix(), Y); });
  testing::expect_error(ErrorKind::shape, "bias is [2], not [3]",
                        [&] { linear(ctx, X, W.matrix(), Y, 0, View<const float, 1>(x.data(), {2})); });
  testing::expect_error(ErrorKind::shape, "W is missing", [&] {
    linear(ctx, X, {WeightType::bf16, 3, 4, nullptr}, Y);
  });
  testing::expect_error(ErrorKind::shape, "W is missing", [&] {
    linear(ctx, X, {WeightType::q8_0, 3, 4, W.matrix().values, nullptr}, Y);
  });
  testing::expect_error(ErrorKind::shape, "is not dense", [&] {
    linear(ctx, X, View<const float, 2>(x.data(), {3, 2}, {3, 1}), Y);
  });
}

/// Row by row, `rows` of them in an order of their own.
void expect_widened(Context& ctx, const WeightMatrix& W, int64_t pad, int64_t misalign) {
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < W.rows + 2; ++i) rows.push_back(static_cast<int32_t>((i * 7 + 3) % W.rows));
  const auto N = static_cast<int64_t>(rows.size());
  GuardedMatrix Y(N, W.columns, pad, misalign);
  widen_rows(ctx, {rows.data(), {N}}, W, Y.view());
  const std::vector<float> y = Y.values();
  int64_t wrong = 0;
  for (int64_t i = 0; i < N * W.columns; ++i) {
    const double expected = reference::weight(W, rows[i / W.columns], i % W.columns);
    const bool is_same = std::isnan(expected) ? std::isnan(y[i]) : y[i] == expected;
    wrong += is_same ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(Y.intact());
}

TEST(WidenRows, IsExact) {
  for (const WeightType type : kWeightTypes) {
    for (const int64_t columns : {1, 15, 17, 31, 64, 97, 2049, 4200}) {
      const RandomWeights W(type, 9, columns, columns, columns % 2);
      for_each_context([&](Context& ctx) { expect_widened(ctx, W.matrix(), columns % 3, columns % 2); });
    }
  }
}

TEST(WidenRows, IsExactForAll16BitPatterns) {
  std::vector<uint16_t> patterns(1 << 16);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  const std::vector<int8_t> values(1 << 16, -3);
  for_each_context([&](Context& ctx) {
    expect_widened(ctx, {WeightType::bf16, 256, 256, patterns.data()}, 0, 0);
    expect_widened(ctx, {WeightType::q8_0, 512, 128, values.data(), patterns.data()}, 0, 0);
    expect_widened(ctx, {WeightType::q8_0, 1 << 16, 1, values.data(), patterns.data()}, 0, 0);
  });
}

}  // namespace
}  // namespace keel
