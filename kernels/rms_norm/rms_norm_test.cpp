#include "keel/kernels/rms_norm/rms_norm.h"

#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/rms_norm/rms_norm_ref.h"
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
  int64_t rows, d;
  int64_t pad = 0, misalign = 0;
  double mean = 0, eps = 1e-5;
  int64_t skew = 1;  ///< by how much the matrices differ in stride and start
};
/// Rows of which a device can take four columns at a time.
Case in_fours(int64_t rows, int64_t d) {
  return {.rows = rows, .d = d, .skew = 0};
}
// One element, one register and its neighbours, one chunk of rows and its neighbours, enough to run in parallel.
const Case kCases[] = {{1, 1},
                       {3, 4, 1, 1},
                       {2, 15},
                       {5, 16, 3},
                       {4, 17, 0, 1},
                       {63, 8},
                       {64, 65, 2, 3},
                       {65, 64},
                       {130, 257, 5, 7},
                       {3, 200, 0, 0, 1000},
                       {2, 8192, 0, 0, 50},
                       {6, 33, 0, 0, 0, 0.5},
                       in_fours(3, 8),
                       in_fours(17, 132),
                       in_fours(2, 384),
                       in_fours(3, 520),
                       in_fours(2, 1028),
                       in_fours(1, 2056),
                       in_fours(1, 4100),
                       in_fours(1, 8188),
                       in_fours(1, 8196)};

struct Problem {
  explicit Problem(const Case& c) : rows(c.rows), d(c.d), eps(static_cast<float>(c.eps)) {
    Random random(static_cast<uint64_t>(7919 * c.rows + c.d));
    x = random.normals(rows * d, c.mean, 0.7);
    if (rows > 1) std::fill_n(x.begin() + d, d, 0.0F);  // a row of zeros
    w = random.normals(d, 1, 0.3);
    dy = random.normals(rows * d);
  }
  int64_t rows, d;
  float eps;
  std::vector<float> x, w, dy;
};

std::string name_of(const Case& c) {
  return std::to_string(c.rows) + " x " + std::to_string(c.d);
}
View<const float, 1> flat(const std::vector<float>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}};
}
View<float, 1> flat(std::vector<float>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}};
}

TEST(RmsNormReference, BackwardIsTheComplexStepOfForward) {
  Random random(1);
  const int64_t rows = 3, d = 5;
  const auto x = widen<double>(random.normals(rows * d)), w = widen<double>(random.normals(d)),
             dy = widen<double>(random.normals(rows * d));
  const double eps = 0.3;
  const auto backward = reference::rms_norm_backward(dy, x, w, reference::rms_norm(x, w, eps).s);
  const auto loss = [&](const std::vector<std::complex<double>>& x_at, const std::vector<std::complex<double>>& w_at) {
    std::complex<double> sum = 0;
    const auto y = reference::rms_norm(x_at, w_at, eps).y;
    for (int64_t i = 0; i < rows * d; ++i) sum += dy[i] * y[i];
    return sum;
  };
  const std::vector<std::complex<double>> fixed_x(x.begin(), x.end()), fixed_w(w.begin(), w.end());
  testing::expect_same_gradient(
      backward.dx, testing::complex_step_gradient(x, [&](const auto& at) { return loss(at, fixed_w); }), "dx");
  testing::expect_same_gradient(
      backward.dw, testing::complex_step_gradient(w, [&](const auto& at) { return loss(fixed_x, at); }), "dw");
}

void check_forward(const Case& c) {
  const Problem p(c);
  const auto expected = reference::rms_norm(widen<double>(p.x), widen<double>(p.w), p.eps);
  // The sum of squares has positive terms only, and s takes half of its relative error.
  const double relative = 4 * (3 + std::sqrt(static_cast<double>(c.d)) / 2) * kUnitFp32;
  for_each_context([&](Context& ctx) {
    GuardedMatrix x(c.rows, c.d, p.x, c.pad, c.misalign), y(c.rows, c.d, c.pad, c.misalign);
    testing::Guarded<float> s(c.rows, c.misalign);
    rms_norm(ctx, x.view(), flat(p.w), p.eps, y.view(), {s.get(), {c.rows}});
    testing::expect_close(
        y.values(), expected.y, [&](int64_t i) { return relative * std::abs(expected.y[i]); }, "y");
    testing::expect_close(
        s.values(), expected.s, [&](int64_t i) { return relative * expected.s[i]; }, "s");
    EXPECT_TRUE(y.intact() && s.intact());
    rms_norm(ctx, x.view(), flat(p.w), p.eps, x.view(), {s.get(), {c.rows}});
    EXPECT_EQ(x.values(), y.values()) << "in place";
  });
}

TEST(RmsNorm, ForwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    check_forward(c);
  }
}

struct Backward {
  std::vector<float> dx, dw;
  bool operator==(const Backward&) const = default;
};

Backward run_backward(Context& ctx, const Case& c, const Problem& p, const std::vector<float>& s, bool accumulate,
                      bool in_place, const std::vector<float>& dx_start, bool in_two_steps = false) {
  GuardedMatrix x(c.rows, c.d, p.x, c.pad, c.misalign), dy(c.rows, c.d, p.dy, c.pad + c.skew, c.misalign);
  GuardedMatrix dx(c.rows, c.d, c.pad, c.misalign), partial(chunk_count(c.rows), c.d, 2, 1);
  if (accumulate) dx.assign(dx_start);
  GuardedMatrix& target = in_place ? dy : dx;
  std::vector<float> dw(c.d, 0.25F);
  const auto run = [&](RowSums sums) {
    rms_norm_backward(ctx, dy.view(), x.view(), flat(p.w), flat(s), target.view(), accumulate, flat(dw), partial.view(),
                      sums);
  };
  if (in_two_steps) {
    run(RowSums::of_chunks);
    run(RowSums::add_up);
  } else {
    run(RowSums::everything);
  }
  EXPECT_TRUE(target.intact() && partial.intact());
  return {target.values(), dw};
}

void check_backward(const Case& c) {
  const Problem p(c);
  std::vector<float> s;
  for (double v : reference::rms_norm(widen<double>(p.x), widen<double>(p.w), p.eps).s)
    s.push_back(static_cast<float>(v));
  const auto expected =
      reference::rms_norm_backward(widen<double>(p.dy), widen<double>(p.x), widen<double>(p.w), widen<double>(s));
  const auto terms = reference::rms_norm_backward(widen<Magnitude>(p.dy), widen<Magnitude>(p.x), widen<Magnitude>(p.w),
                                                  widen<Magnitude>(s));
  const double root_d = std::sqrt(static_cast<double>(c.d)), root_rows = std::sqrt(static_cast<double>(c.rows));
  const auto dx_tolerance = [&](int64_t i) { return 4 * (6 + root_d) * kUnitFp32 * terms.dx[i].value(); };
  Random random(3);
  const auto start = random.normals(c.rows * c.d);
  for_each_context([&](Context& ctx) {
    const Backward plain = run_backward(ctx, c, p, s, false, false, {});
    testing::expect_close(plain.dx, expected.dx, dx_tolerance, "dx");
    std::vector<double> dw;
    for (double v : expected.dw) dw.push_back(0.25 + v);
    testing::expect_close(
        plain.dw, dw, [&](int64_t i) { return 4 * (3 + root_rows) * kUnitFp32 * (0.25 + terms.dw[i].value()); }, "dw");
    EXPECT_EQ(run_backward(ctx, c, p, s, false, true, {}), plain) << "in place";
    EXPECT_EQ(run_backward(ctx, c, p, s, false, false, {}, true), plain) << "chunks, then their sums";

    const Backward added = run_backward(ctx, c, p, s, true, false, start);
    std::vector<double> sum;
    for (size_t i = 0; i < start.size(); ++i) sum.push_back(start[i] + expected.dx[i]);
    testing::expect_close(
        added.dx, sum, [&](int64_t i) { return dx_tolerance(i) + 4 * kUnitFp32 * std::abs(sum[i]); }, "dx accumulated");
    Context one = testing::single_threaded(ctx);
    EXPECT_EQ(run_backward(one, c, p, s, false, false, {}), plain) << "one thread";
  });
}

TEST(RmsNorm, BackwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    check_backward(c);
  }
}

/// Heads [N, heads, d] between other columns of wider rows.
struct HeadsCase {
  int64_t N, heads, d, before, after;
};

View<float, 3> heads_of(GuardedMatrix& rows, const HeadsCase& c) {
  return {rows.view().data() + c.before, {c.N, c.heads, c.d}, {rows.view().stride(0), c.d, 1}};
}

std::vector<float> spread(const std::vector<float>& heads, const HeadsCase& c) {
  const int64_t own = c.heads * c.d, width = c.before + own + c.after;
  std::vector<float> rows(c.N * width, 7.0F);
  for (int64_t i = 0; i < c.N * own; ++i) rows[i / own * width + c.before + i % own] = heads[i];
  return rows;
}

TEST(RmsNorm, EveryHeadIsARowOfItsOwn) {
  for (const HeadsCase& c : {HeadsCase{1, 1, 4, 0, 0}, HeadsCase{5, 3, 8, 2, 5}, HeadsCase{70, 4, 20, 0, 40}}) {
    const Problem p({c.N * c.heads, c.d});
    const int64_t width = c.before + c.heads * c.d + c.after;
    for_each_context([&](Context& ctx) {
      GuardedMatrix x(c.N, width, spread(p.x, c)), y(c.N, width, spread(std::vector<float>(p.x.size()), c));
      GuardedMatrix flat_y(p.rows, p.d), flat_x(p.rows, p.d, p.x);
      std::vector<float> s(p.rows), flat_s(p.rows);
      rms_norm(ctx, heads_of(x, c), flat(p.w), p.eps, heads_of(y, c), {s.data(), {c.N, c.heads}});
      rms_norm(ctx, flat_x.view(), flat(p.w), p.eps, flat_y.view(), flat(flat_s));
      EXPECT_EQ(y.values(), spread(flat_y.values(), c));
      EXPECT_EQ(s, flat_s);

      GuardedMatrix dy(c.N, width, spread(p.dy, c)), partial(chunk_count(p.rows), p.d);
      std::vector<float> dw(p.d, 0.25F);
      const auto expected = run_backward(ctx, {p.rows, p.d}, p, s, false, false, {});
      rms_norm_backward(ctx, heads_of(dy, c), heads_of(x, c), flat(p.w), {s.data(), {c.N, c.heads}}, heads_of(dy, c),
                        flat(dw), partial.view());
      EXPECT_EQ(dy.values(), spread(expected.dx, c));
      EXPECT_EQ(dw, expected.dw);
    });
  }
}

TEST(RmsNorm, NothingToDo) {
  for_each_context([&](Context& ctx) {
    std::vector<float> w(8, 1.0F), dw(8, 3.0F);
    rms_norm(ctx, View<const float, 2>(nullptr, {0, 8}), flat(w), 1e-5F, View<float, 2>(nullptr, {0, 8}),
             View<float, 1>(nullptr, {0}));
    rms_norm_backward(ctx, View<const float, 2>(nullptr, {0, 8}), View<const float, 2>(nullptr, {0, 8}), flat(w),
                      View<const float, 1>(nullptr, {0}), View<float, 2>(nullptr, {0, 8}), false, flat(dw),
                      View<float, 2>(nullptr, {0, 8}));
    EXPECT_EQ(dw, std::vector<float>(8, 3.0F));
  });
}

TEST(RmsNorm, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> memory(64);
  const View<float, 2> x(memory.data(), {2, 8});
  const View<float, 1> w(memory.data(), {8}), s(memory.data(), {2});
  try {
    rms_norm(ctx, x, View<const float, 1>(memory.data(), {7}), 1e-5F, x, s);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::shape);
    EXPECT_STREQ(e.what(), "w is [7], not [8] (rms_norm)");
  }
  EXPECT_THROW(rms_norm(ctx, x, w, 1e-5F, View<float, 2>(memory.data(), {2, 8}, {16, 2}), s), Error);
  EXPECT_THROW(rms_norm(ctx, x, w, 1e-5F, x, {}), Error);
  EXPECT_THROW(rms_norm_backward(ctx, x, x, w, s, x, false, w, View<float, 2>(memory.data(), {2, 8})), Error);
}

}  // namespace
}  // namespace keel
