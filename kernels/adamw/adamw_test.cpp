#include "keel/kernels/adamw/adamw.h"

#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/adamw/adamw_ref.h"
#include "support/contexts.h"
#include "support/numeric.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::Guarded;
using testing::kUnitFp32;
using testing::Random;
using testing::widen;

constexpr double kBeta1 = 0.9, kBeta2 = 0.95;

StepScalars scalars_of_step(int64_t t) {
  StepScalars s{};
  for (int c = 0; c < kParameterClasses; ++c) s.learning_rate[c] = 1e-3 * (c + 1);
  s.bias_correction1 = 1 - std::pow(kBeta1, static_cast<double>(t));
  s.bias_correction2 = 1 - std::pow(kBeta2, static_cast<double>(t));
  s.grad_scale = 0.37;
  return s;
}

/// Segments with and without decay, of every class, out of order, with gaps between them and one empty.
std::vector<AdamwSegment> segments_of(int64_t large) {
  using enum ParameterClass;
  return {{.offset = 100, .size = large, .parameter_class = mlp, .weight_decay = 0.1F},
          {.offset = 0, .size = 17, .parameter_class = norm},
          {.offset = 20, .size = 1, .parameter_class = scalar, .eps = 1e-3F},
          {.offset = 25, .size = 0, .parameter_class = head},
          {.offset = 30, .size = 33, .parameter_class = attention, .weight_decay = 0.5F, .eps = 1e-6F},
          {.offset = 64, .size = 16, .parameter_class = embedding, .weight_decay = 0.01F},
          {.offset = 103 + large, .size = 5, .parameter_class = head, .weight_decay = 0.1F}};
}

struct State {
  std::vector<float> w, m, v;
  bool operator==(const State&) const = default;
};

struct Problem {
  explicit Problem(int64_t large) : segments(segments_of(large)), size(large + 110) {
    Random random(static_cast<uint64_t>(large));
    gradient = random.normals(size);
    start = {random.normals(size), random.normals(size, 0, 0.1), {}};
    for (int64_t i = 0; i < size; ++i) start.v.push_back(static_cast<float>(0.02 * random.uniform()));
    // Never updated before; and without any gradient at all.
    for (int64_t i = 0; i < size; i += 5) start.m[i] = start.v[i] = 0;
    for (int64_t i = 0; i < size; i += 10) gradient[i] = 0;
  }
  std::vector<AdamwSegment> segments;
  int64_t size;
  std::vector<float> gradient;
  State start;
};

State run(Context& ctx, const Problem& p, StepScalars scalars, int64_t misalign = 0) {
  Guarded<float> w(p.size, misalign), m(p.size, misalign), v(p.size, misalign);
  w.assign(p.start.w);
  m.assign(p.start.m);
  v.assign(p.start.v);
  adamw(ctx, p.segments, kBeta1, kBeta2, {&scalars, {1}}, {p.gradient.data(), {p.size}}, {w.get(), {p.size}},
        {m.get(), {p.size}}, {v.get(), {p.size}});
  EXPECT_TRUE(w.intact() && m.intact() && v.intact());
  return {w.values(), m.values(), v.values()};
}

void check(int64_t large, int64_t t) {
  const Problem p(large);
  const StepScalars scalars = scalars_of_step(t);
  auto w = widen<double>(p.start.w), m = widen<double>(p.start.m), v = widen<double>(p.start.v);
  reference::adamw(std::span<const AdamwSegment>(p.segments), kBeta1, kBeta2, scalars, widen<double>(p.gradient), w, m,
                   v);

  // A constant, a product and a sum each: three roundings a term. What the update divides by loses half of v's error.
  const auto m_tolerance = [&](int64_t i) {
    return 4 * kUnitFp32 *
           (kBeta1 * std::abs(p.start.m[i]) + (1 - kBeta1) * scalars.grad_scale * std::abs(p.gradient[i]));
  };
  const auto v_tolerance = [&](int64_t i) { return 6 * kUnitFp32 * v[i]; };
  const auto w_tolerance = [&](int64_t i) {
    const double largest_lr = scalars.learning_rate[kParameterClasses - 1];
    const double root = std::sqrt(v[i] / scalars.bias_correction2);
    const double update = root == 0 ? 0 : largest_lr / scalars.bias_correction1 / root;
    return 4 * kUnitFp32 * std::abs(p.start.w[i]) + update * (m_tolerance(i) + 10 * kUnitFp32 * std::abs(m[i]));
  };
  State one_thread;
  for_each_context([&](Context& ctx) {
    const State result = run(ctx, p, scalars, large % 4);
    testing::expect_close(result.m, m, m_tolerance, "m");
    testing::expect_close(result.v, v, v_tolerance, "v");
    testing::expect_close(result.w, w, w_tolerance, "w");
    if (ctx.threads() == 1) one_thread = result;
    EXPECT_EQ(result, one_thread);
  });
}

TEST(Adamw, AgreesWithTheReference) {
  for (int64_t large : {1, 15, 31, 20000}) {
    for (int64_t t : {1, 2, 1000}) {
      SCOPED_TRACE("large segment " + std::to_string(large) + ", step " + std::to_string(t));
      check(large, t);
    }
  }
}

TEST(Adamw, ElementsOutsideTheSegmentsAreLeftAlone) {
  const Problem p(40);
  Context ctx(2);
  const State result = run(ctx, p, scalars_of_step(1));
  std::vector<bool> inside(p.size, false);
  for (const AdamwSegment& s : p.segments) std::fill_n(inside.begin() + s.offset, s.size, true);
  ASSERT_TRUE(std::count(inside.begin(), inside.end(), false) > 10);
  for (int64_t i = 0; i < p.size; ++i) {
    const bool same = result.w[i] == p.start.w[i] && result.m[i] == p.start.m[i] && result.v[i] == p.start.v[i];
    if (p.gradient[i] == 0) continue;
    EXPECT_EQ(same, !inside[i]) << i;
  }
}

TEST(Adamw, ANonFiniteStepChangesNothing) {
  const Problem p(20000);
  StepScalars scalars = scalars_of_step(1);
  scalars.non_finite = 1;
  for_each_context([&](Context& ctx) { EXPECT_EQ(run(ctx, p, scalars), p.start); });
}

TEST(Adamw, AFirstStepMovesByTheLearningRate) {
  Context ctx(1);
  std::vector<float> w = {1, 1}, g = {5, -5}, m(2), v(2);
  StepScalars scalars = scalars_of_step(1);
  const std::vector<AdamwSegment> segments = {{.offset = 0, .size = 2, .parameter_class = ParameterClass::norm}};
  adamw(ctx, segments, kBeta1, kBeta2, {&scalars, {1}}, {g.data(), {2}}, {w.data(), {2}}, {m.data(), {2}},
        {v.data(), {2}});
  const double lr = scalars.learning_rate[static_cast<int>(ParameterClass::norm)];
  EXPECT_TRUE(testing::is_close(w[0], 1 - lr, 4 * kUnitFp32));
  EXPECT_TRUE(testing::is_close(w[1], 1 + lr, 4 * kUnitFp32));
}

TEST(Adamw, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> a(8);
  StepScalars s = scalars_of_step(1);
  const View<float, 1> ok(a.data(), {8}), small(a.data(), {7});
  const std::vector<AdamwSegment> inside = {{.offset = 4, .size = 4}}, outside = {{.offset = 4, .size = 5}};
  EXPECT_NO_THROW(adamw(ctx, inside, kBeta1, kBeta2, {&s, {1}}, ok, ok, ok, ok));
  EXPECT_THROW(adamw(ctx, inside, kBeta1, kBeta2, {&s, {1}}, ok, ok, small, ok), Error);
  EXPECT_THROW(adamw(ctx, inside, kBeta1, kBeta2, {&s, {1}}, small, ok, ok, ok), Error);
  try {
    adamw(ctx, outside, kBeta1, kBeta2, {&s, {1}}, ok, ok, ok, ok);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "a segment of 5 elements from 4 is not part of 8 (adamw)");
  }
}

}  // namespace
}  // namespace keel
