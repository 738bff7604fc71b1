#include "keel/kernels/rope/rope.h"

#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/rope/rope_ref.h"
#include "support/complex_step.h"
#include "support/contexts.h"
#include "support/guarded_matrix.h"
#include "support/magnitude.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::GuardedMatrix;
using testing::kUnitFp32;
using testing::Magnitude;
using testing::Random;
using testing::widen;

struct Case {
  int64_t rows, heads, head_dim;
  int64_t pad = 0, misalign = 0;
};
const Case kCases[] = {{1, 1, 2}, {3, 2, 6, 1, 1}, {5, 3, 32}, {4, 1, 34, 2, 3}, {70, 5, 64, 8, 0}, {33, 4, 128}};
constexpr int64_t kPositions = 50;

struct Problem {
  explicit Problem(const Case& c) {
    Random random(static_cast<uint64_t>(31 * c.rows + c.head_dim));
    x = random.normals(c.rows * c.heads * c.head_dim);
    for (int64_t n = 0; n < c.rows; ++n) positions.push_back(static_cast<int32_t>(random.integer(0, kPositions - 1)));
    const int64_t pairs = c.head_dim / 2;
    for (int64_t i = 0; i < kPositions * pairs; ++i) {
      const double angle = random.uniform(0, 6.28);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
    for (int32_t p : positions) {
      for (int64_t i = 0; i < pairs; ++i) {
        cos_of_row.push_back(cos[p * pairs + i]);
        sin_of_row.push_back(sin[p * pairs + i]);
      }
    }
  }
  std::vector<float> x, cos, sin;
  std::vector<int32_t> positions;
  std::vector<double> cos_of_row, sin_of_row;
};

/// The first heads of rows that hold `pad` more elements, as q and k lie before v.
View<float, 3> heads_of(GuardedMatrix& x, const Case& c) {
  return {x.view().data(), {c.rows, c.heads, c.head_dim}, {x.view().stride(0), c.head_dim, 1}};
}

TEST(RopeReference, BackwardIsTheComplexStepOfForward) {
  const Case c{3, 2, 6};
  const Problem p(c);
  const auto x = widen<double>(p.x), dy = widen<double>(Random(5).normals(static_cast<int64_t>(p.x.size())));
  const auto backward = reference::rope(dy, p.cos_of_row, p.sin_of_row, c.heads, c.head_dim, -1);
  const auto stepped = testing::complex_step_gradient(x, [&](const std::vector<std::complex<double>>& at) {
    const auto y = reference::rope(at, p.cos_of_row, p.sin_of_row, c.heads, c.head_dim, 1);
    std::complex<double> sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  });
  testing::expect_same_gradient(backward, stepped, "dx");
}

void check(const Case& c, RopeDirection direction) {
  Problem p(c);
  const double sign = direction == RopeDirection::forward ? 1 : -1;
  const auto expected = reference::rope(widen<double>(p.x), p.cos_of_row, p.sin_of_row, c.heads, c.head_dim, sign);
  const auto terms = reference::rope(widen<Magnitude>(p.x), p.cos_of_row, p.sin_of_row, c.heads, c.head_dim, sign);
  for_each_context([&](Context& ctx) {
    GuardedMatrix x(c.rows, c.heads * c.head_dim, p.x, c.pad, c.misalign);
    const View<const float, 2> cos(p.cos.data(), {kPositions, c.head_dim / 2});
    const View<const float, 2> sin(p.sin.data(), {kPositions, c.head_dim / 2});
    rope(ctx, {p.positions.data(), {c.rows}}, cos, sin, heads_of(x, c), direction);
    testing::expect_close(
        x.values(), expected, [&](int64_t i) { return 4 * 2 * kUnitFp32 * terms[i].value(); }, "x");
    EXPECT_TRUE(x.intact());
  });
}

TEST(Rope, AgreesWithTheReference) {
  for (const Case& c : kCases) {
    for (RopeDirection direction : {RopeDirection::forward, RopeDirection::backward}) {
      SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.heads) + " x " + std::to_string(c.head_dim));
      check(c, direction);
    }
  }
}

void check_table(int64_t positions, int64_t pairs, double theta) {
  std::vector<double> exact_cos, exact_sin, frequencies;
  for (int64_t i = 0; i < pairs; ++i) frequencies.push_back(std::pow(theta, -static_cast<double>(i) / pairs));
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < pairs; ++i) {
      const long double angle = p * std::pow(static_cast<long double>(theta), -1.0L * i / pairs);
      exact_cos.push_back(static_cast<double>(std::cos(angle)));
      exact_sin.push_back(static_cast<double>(std::sin(angle)));
    }
  }
  // One rounding to fp32, and an angle that is off by some units of double.
  const auto tolerance = [&](const std::vector<double>& exact) {
    return [&](int64_t i) { return kUnitFp32 * std::abs(exact[i]) + 8 * 0x1p-53 * static_cast<double>(i / pairs); };
  };
  for_each_context([&](Context& ctx) {
    GuardedMatrix cos(positions, pairs, 1), sin(positions, pairs, 0, 1);
    rope_table(ctx, {frequencies.data(), {pairs}}, cos.view(), sin.view());
    testing::expect_close(cos.values(), exact_cos, tolerance(exact_cos), "cos");
    testing::expect_close(sin.values(), exact_sin, tolerance(exact_sin), "sin");
    EXPECT_TRUE(cos.intact() && sin.intact());
  });
}

TEST(Rope, TableIsExactToItsRounding) {
  for (int64_t pairs : {1, 5, 32}) {
    check_table(700, pairs, 1e4);
    check_table(100, pairs, 5e5);
  }
}

TEST(Rope, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> memory(64);
  const std::vector<int32_t> positions(2);
  const View<const float, 2> table(memory.data(), {4, 4});
  const View<float, 3> x(memory.data(), {2, 1, 8});
  EXPECT_NO_THROW(rope(ctx, {positions.data(), {2}}, table, table, x));
  EXPECT_THROW(rope(ctx, {positions.data(), {1}}, table, table, x), Error);
  const std::vector<double> frequencies(3);
  EXPECT_THROW(rope_table(ctx, {frequencies.data(), {3}}, View<float, 2>(memory.data(), {4, 4}),
                          View<float, 2>(memory.data(), {4, 4})),
               Error);
  EXPECT_THROW(rope(ctx, {positions.data(), {2}}, View<const float, 2>(memory.data(), {4, 3}), table, x), Error);
  try {
    rope(ctx, {positions.data(), {2}}, table, table, View<float, 3>(memory.data(), {2, 1, 7}));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "head_dim 7 is odd (rope)");
  }
}

}  // namespace
}  // namespace keel
