#include "keel/kernels/column_scale/column_scale.h"

#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/column_scale/column_scale_ref.h"
#include "keel/kernels/common/chunks.h"
#include "support/complex_step.h"
#include "support/contexts.h"
#include "support/guarded_matrix.h"
#include "support/magnitude.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::Guarded;
using testing::GuardedMatrix;
using testing::kUnitFp32;
using testing::Magnitude;
using testing::Random;
using testing::widen;

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
const Case kCases[] = {{1, 1},        {3, 15, 2, 1},       {63, 16},       {64, 65, 1, 3},    {65, 33, 0, 0},
                       {300, 257, 7}, {40, 5, 0, 1, 1000}, in_fours(3, 8), in_fours(17, 132), in_fours(70, 1028)};

struct Problem {
  explicit Problem(const Case& c) {
    Random random(static_cast<uint64_t>(7919 * c.rows + c.d));
    x = random.normals(c.rows * c.d, c.mean);
    dy = random.normals(c.rows * c.d);
    s = random.normals(c.d, 1, 0.3);
  }
  std::vector<float> x, dy, s;
};

View<float, 1> flat(std::vector<float>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}};
}

TEST(ColumnScaleReference, BackwardIsTheComplexStepOfForward) {
  Random random(1);
  const auto x = widen<double>(random.normals(6)), s = widen<double>(random.normals(3)),
             dy = widen<double>(random.normals(6));
  using Complex = std::complex<double>;
  const auto loss = [&](const std::vector<Complex>& x_at, const std::vector<Complex>& s_at) {
    const auto y = reference::column_scale(x_at, s_at);
    Complex sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  const std::vector<Complex> fixed_x(x.begin(), x.end()), fixed_s(s.begin(), s.end());
  const auto backward = reference::column_scale_backward(dy, x, s);
  testing::expect_same_gradient(
      backward.dx, testing::complex_step_gradient(x, [&](const auto& at) { return loss(at, fixed_s); }), "dx");
  testing::expect_same_gradient(
      backward.ds, testing::complex_step_gradient(s, [&](const auto& at) { return loss(fixed_x, at); }), "ds");
}

TEST(ColumnScale, ForwardIsOneProduct) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.d));
    Problem p(c);
    for_each_context([&](Context& ctx) {
      GuardedMatrix x(c.rows, c.d, p.x, c.pad, c.misalign), y(c.rows, c.d, c.pad + c.skew, c.misalign);
      column_scale(ctx, x.view(), flat(p.s), y.view());
      EXPECT_EQ(y.values(), reference::column_scale(p.x, p.s));
      column_scale(ctx, x.view(), flat(p.s), x.view());
      EXPECT_EQ(x.values(), y.values()) << "in place";
      EXPECT_TRUE(x.intact() && y.intact());
    });
  }
}

struct Backward {
  std::vector<float> dx, ds;
  bool operator==(const Backward&) const = default;
};

constexpr float kStart = 0.25F;  // what ds holds before

Backward run_backward(Context& ctx, const Case& c, Problem p, bool in_place, bool in_two_steps = false) {
  GuardedMatrix x(c.rows, c.d, p.x, c.pad, c.misalign), dy(c.rows, c.d, p.dy, c.pad + c.skew, c.misalign);
  GuardedMatrix dx(c.rows, c.d, c.pad, c.misalign), partial(chunk_count(c.rows), c.d, 1, 2);
  GuardedMatrix& target = in_place ? dy : dx;
  Guarded<float> ds(c.d, c.misalign);
  ds.assign(std::vector<float>(c.d, kStart));
  const auto run = [&](RowSums sums) {
    column_scale_backward(ctx, dy.view(), x.view(), flat(p.s), target.view(), {ds.get(), {c.d}}, partial.view(), sums);
  };
  if (in_two_steps) {
    run(RowSums::of_chunks);
    run(RowSums::add_up);
  } else {
    run(RowSums::everything);
  }
  EXPECT_TRUE(target.intact() && ds.intact() && partial.intact());
  return {target.values(), ds.values()};
}

TEST(ColumnScale, BackwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.d));
    const Problem p(c);
    auto ds = reference::column_scale_backward(widen<double>(p.dy), widen<double>(p.x), widen<double>(p.s)).ds;
    for (double& v : ds) v += kStart;
    const auto terms =
        reference::column_scale_backward(widen<Magnitude>(p.dy), widen<Magnitude>(p.x), widen<Magnitude>(p.s));
    const double roundings = 2 + std::sqrt(static_cast<double>(c.rows));
    for_each_context([&](Context& ctx) {
      const Backward found = run_backward(ctx, c, p, false);
      EXPECT_EQ(found.dx, reference::column_scale(p.dy, p.s));
      testing::expect_close(
          found.ds, ds, [&](int64_t i) { return 4 * roundings * kUnitFp32 * (kStart + terms.ds[i].value()); }, "ds");
      EXPECT_EQ(run_backward(ctx, c, p, true), found) << "dx is dy";
      EXPECT_EQ(run_backward(ctx, c, p, false, true), found) << "chunks, then their sums";
      Context one = testing::single_threaded(ctx);
      EXPECT_EQ(run_backward(one, c, p, false), found) << "one thread";
    });
  }
}

TEST(ColumnScale, NothingToDo) {
  for_each_context([&](Context& ctx) {
    std::vector<float> s(8, 1.0F), ds(8, 3.0F);
    const View<float, 2> none(nullptr, {0, 8});
    column_scale(ctx, none, flat(s), none);
    column_scale_backward(ctx, none, none, flat(s), none, flat(ds), none);
    EXPECT_EQ(ds, std::vector<float>(8, 3.0F));
  });
}

TEST(ColumnScale, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> memory(64);
  const View<float, 2> x(memory.data(), {2, 8}), partial(memory.data(), {1, 8});
  const View<float, 1> s(memory.data(), {8}), short_s(memory.data(), {7});
  EXPECT_THROW(column_scale(ctx, x, short_s, x), Error);
  EXPECT_THROW(column_scale(ctx, x, s, partial), Error);
  EXPECT_THROW(column_scale_backward(ctx, x, x, s, x, short_s, partial), Error);
  EXPECT_THROW(column_scale_backward(ctx, x, x, s, x, s, x), Error);
  EXPECT_THROW(column_scale_backward(ctx, partial, x, s, x, s, partial), Error);
}

}  // namespace
}  // namespace keel
