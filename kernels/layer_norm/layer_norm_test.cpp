#include "keel/kernels/layer_norm/layer_norm.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/layer_norm/layer_norm_ref.h"
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
  explicit Problem(const Case& c)
      : rows(c.rows), d(c.d), eps(static_cast<float>(c.eps)), factor(c.rows % 2 == 0 ? 0.6F : 1) {
    Random random(static_cast<uint64_t>(7919 * c.rows + c.d));
    x = random.normals(rows * d, c.mean, 0.7);
    if (rows > 1) std::fill_n(x.begin() + d, d, static_cast<float>(c.mean));  // a row without variance
    w = random.normals(d, 1, 0.3);
    bias = random.normals(d, 0, 0.5);
    dy = random.normals(rows * d);
  }
  /// `v` as the factor has it.
  template <class S>
  std::vector<S> times_factor(const std::vector<float>& v) const {
    std::vector<S> scaled = widen<S>(v);
    for (S& value : scaled) value = value * S(static_cast<double>(factor));
    return scaled;
  }
  int64_t rows, d;
  float eps, factor;
  std::vector<float> x, w, bias, dy;
};

std::string name_of(const Case& c) {
  return std::to_string(c.rows) + " x " + std::to_string(c.d);
}
View<float, 1> flat(std::vector<float>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}};
}
View<const float, 1> flat(const std::vector<float>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}};
}
View<float, 1> flat(Guarded<float>& v) {
  return {v.get(), {v.size()}};
}
std::vector<float> narrow(const std::vector<double>& v) {
  return {v.begin(), v.end()};
}

TEST(LayerNormReference, BackwardIsTheComplexStepOfForward) {
  Random random(1);
  const int64_t rows = 3, d = 5;
  const double eps = 0.3;
  const auto x = widen<double>(random.normals(rows * d, 0.4)), w = widen<double>(random.normals(d)),
             bias = widen<double>(random.normals(d)), dy = widen<double>(random.normals(rows * d));
  using Complex = std::complex<double>;
  std::vector<Complex> x_at(x.begin(), x.end()), w_at(w.begin(), w.end()), bias_at(bias.begin(), bias.end());
  const auto stepped = [&](std::vector<Complex>& field, const std::vector<double>& value) {
    return testing::complex_step_gradient(value, [&](const std::vector<Complex>& at) {
      const std::vector<Complex> saved = std::exchange(field, at);
      const auto y = reference::layer_norm(x_at, w_at, bias_at, eps).y;
      field = saved;
      Complex sum = 0;
      for (int64_t i = 0; i < rows * d; ++i) sum += dy[i] * y[i];
      return sum;
    });
  };
  const auto forward = reference::layer_norm(x, w, bias, eps);
  const auto backward = reference::layer_norm_backward(dy, x, w, forward.r, forward.mean);
  testing::expect_same_gradient(backward.dx, stepped(x_at, x), "dx");
  testing::expect_same_gradient(backward.dw, stepped(w_at, w), "dw");
  testing::expect_same_gradient(backward.dbias, stepped(bias_at, bias), "dbias");
}

struct ForwardTolerance {
  std::vector<double> y, r, mean;
};

/// First-order rounding of the mean carried through the norm, row by row.
ForwardTolerance forward_tolerance(const Problem& p, const reference::LayerNorm<double>& exact) {
  constexpr double u = kUnitFp32, kFactor = 4;
  const auto width = static_cast<double>(p.d);
  const double root_d = std::sqrt(width);
  ForwardTolerance t;
  for (int64_t r = 0; r < p.rows; ++r) {
    double magnitudes = 0, squares = 0, moved = 0;
    for (int64_t i = r * p.d; i < (r + 1) * p.d; ++i) magnitudes += std::abs(p.x[i]);
    const double mean_error = (root_d + 1) * u * magnitudes / width;
    const auto centred = [&](int64_t i) { return std::abs(p.x[i] - exact.mean[r]); };
    const auto centred_error = [&](int64_t i) { return mean_error + u * centred(i); };
    for (int64_t i = r * p.d; i < (r + 1) * p.d; ++i) {
      squares += centred(i) * centred(i);
      moved += centred(i) * centred_error(i) + centred_error(i) * centred_error(i) / 2;
    }
    const double root_error = moved / (squares + width * p.eps) + (root_d / 2 + 3) * u;  // relative
    for (int64_t i = r * p.d; i < (r + 1) * p.d; ++i) {
      const double gain = exact.r[r] * std::abs(p.w[i % p.d]);
      t.y.push_back(kFactor * (gain * centred_error(i) + gain * centred(i) * (root_error + 2 * u) +
                               u * (std::abs(exact.y[i]) + std::abs(p.bias[i % p.d]))));
    }
    t.r.push_back(kFactor * root_error * exact.r[r]);
    t.mean.push_back(kFactor * mean_error);
  }
  return t;
}

void check_forward(const Case& c) {
  const Problem p(c);
  const auto exact =
      reference::layer_norm(widen<double>(p.x), p.times_factor<double>(p.w), p.times_factor<double>(p.bias), p.eps);
  const ForwardTolerance tolerance = forward_tolerance(p, exact);
  const auto at = [](const std::vector<double>& t) { return [&t](int64_t i) { return t[i]; }; };
  for_each_context([&](Context& ctx) {
    GuardedMatrix x(c.rows, c.d, p.x, c.pad, c.misalign), y(c.rows, c.d, c.pad + c.skew, c.misalign);
    Guarded<float> r(c.rows, c.misalign), mean(c.rows);
    layer_norm(ctx, x.view(), flat(p.w), flat(p.bias), p.factor, p.eps, y.view(), flat(r), flat(mean));
    testing::expect_close(y.values(), exact.y, at(tolerance.y), "y");
    testing::expect_close(r.values(), exact.r, at(tolerance.r), "r");
    testing::expect_close(mean.values(), exact.mean, at(tolerance.mean), "mean");
    EXPECT_TRUE(y.intact() && r.intact() && mean.intact());
    layer_norm(ctx, x.view(), flat(p.w), flat(p.bias), p.factor, p.eps, x.view(), flat(r), flat(mean));
    EXPECT_EQ(x.values(), y.values()) << "in place";
    EXPECT_TRUE(x.intact());
  });
}

TEST(LayerNorm, ForwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    check_forward(c);
  }
}

struct Backward {
  std::vector<float> dx, dw, dbias;
  bool operator==(const Backward&) const = default;
};

constexpr float kStart = 0.25F;  // what the accumulated gradients hold before

struct BackwardCheck {
  explicit BackwardCheck(const Case& c_) : c(c_), p(c_) {
    const auto forward = reference::layer_norm(widen<double>(p.x), widen<double>(p.w), widen<double>(p.bias), p.eps);
    r = narrow(forward.r);
    mean = narrow(forward.mean);
    exact = reference::layer_norm_backward(p.times_factor<double>(p.dy), widen<double>(p.x), widen<double>(p.w),
                                           widen<double>(r), widen<double>(mean));
    // x - mean is one rounding of the difference, whatever the mean.
    std::vector<Magnitude> centred;
    for (int64_t i = 0; i < p.rows * p.d; ++i) centred.emplace_back(static_cast<double>(p.x[i]) - mean[i / p.d]);
    terms = reference::layer_norm_backward(p.times_factor<Magnitude>(p.dy), centred, widen<Magnitude>(p.w),
                                           widen<Magnitude>(r), std::vector<Magnitude>(p.rows));
    start = Random(3).normals(p.rows * p.d);
  }

  Backward run(Context& ctx, bool accumulate, bool in_place, bool in_two_steps = false) const {
    GuardedMatrix x(c.rows, c.d, p.x, c.pad, c.misalign), dy(c.rows, c.d, p.dy, c.pad + c.skew, c.misalign);
    GuardedMatrix dx(c.rows, c.d, c.pad, c.misalign), partial(chunk_count(c.rows), 2 * c.d, 2, 1);
    if (accumulate) dx.assign(start);
    GuardedMatrix& target = in_place ? dy : dx;
    Guarded<float> dw(c.d, c.misalign), dbias(c.d, 1);
    dw.assign(std::vector<float>(c.d, kStart));
    dbias.assign(std::vector<float>(c.d, kStart));
    const auto run = [&](RowSums sums) {
      layer_norm_backward(ctx, dy.view(), x.view(), flat(p.w), flat(r), flat(mean), p.factor, target.view(), accumulate,
                          flat(dw), flat(dbias), partial.view(), sums);
    };
    if (in_two_steps) {
      run(RowSums::of_chunks);
      run(RowSums::add_up);
    } else {
      run(RowSums::everything);
    }
    EXPECT_TRUE(target.intact() && partial.intact() && dw.intact() && dbias.intact());
    return {target.values(), dw.values(), dbias.values()};
  }

  void expect_right(const Backward& found, bool accumulated) const {
    const double root_d = std::sqrt(static_cast<double>(c.d)), root_rows = std::sqrt(static_cast<double>(c.rows));
    std::vector<double> dx = exact.dx;
    for (size_t i = 0; accumulated && i < dx.size(); ++i) dx[i] += start[i];
    testing::expect_close(
        found.dx, dx,
        [&](int64_t i) {
          return 4 * kUnitFp32 * ((8 + root_d) * terms.dx[i].value() + (accumulated ? std::abs(dx[i]) : 0));
        },
        "dx");
    expect_accumulated(found.dw, exact.dw, terms.dw, 4 + root_rows, "dw");
    expect_accumulated(found.dbias, exact.dbias, terms.dbias, 1 + root_rows, "dbias");
  }

  static void expect_accumulated(const std::vector<float>& found, std::vector<double> expected,
                                 const std::vector<Magnitude>& terms, double roundings, const std::string& what) {
    for (double& e : expected) e += kStart;
    testing::expect_close(
        found, expected, [&](int64_t i) { return 4 * roundings * kUnitFp32 * (kStart + terms[i].value()); }, what);
  }

  Case c;
  Problem p;
  std::vector<float> r, mean, start;
  reference::LayerNormGradients<double> exact;
  reference::LayerNormGradients<Magnitude> terms;
};

TEST(LayerNorm, BackwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const BackwardCheck check(c);
    for_each_context([&](Context& ctx) {
      const Backward plain = check.run(ctx, false, false);
      check.expect_right(plain, false);
      EXPECT_EQ(check.run(ctx, false, true), plain) << "dx is dy";
      EXPECT_EQ(check.run(ctx, false, false, true), plain) << "chunks, then their sums";
      BackwardCheck elsewhere = check;
      elsewhere.c.misalign += 1;
      EXPECT_EQ(elsewhere.run(ctx, false, false), plain) << "elsewhere in memory";
      check.expect_right(check.run(ctx, true, false), true);
      Context one = testing::single_threaded(ctx);
      EXPECT_EQ(check.run(one, false, false), plain) << "one thread";
    });
  }
}

TEST(LayerNorm, NothingToDo) {
  for_each_context([&](Context& ctx) {
    std::vector<float> w(8, 1.0F), dw(8, 3.0F), dbias(8, 4.0F);
    const View<float, 2> none(nullptr, {0, 8});
    const View<float, 1> no_rows(nullptr, {0});
    layer_norm(ctx, none, flat(w), flat(w), 1, 1e-5F, none, no_rows, no_rows);
    layer_norm_backward(ctx, none, none, flat(w), no_rows, no_rows, 1, none, false, flat(dw), flat(dbias),
                        View<float, 2>(nullptr, {0, 16}));
    EXPECT_EQ(dw, std::vector<float>(8, 3.0F));
    EXPECT_EQ(dbias, std::vector<float>(8, 4.0F));
  });
}

TEST(LayerNorm, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> memory(64);
  const View<float, 2> x(memory.data(), {2, 8});
  const View<float, 1> w(memory.data(), {8}), r(memory.data(), {2});
  try {
    layer_norm(ctx, x, w, View<const float, 1>(memory.data(), {7}), 1, 1e-5F, x, r, r);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::shape);
    EXPECT_STREQ(e.what(), "bias is [7], not [8] (layer_norm)");
  }
  EXPECT_THROW(layer_norm(ctx, x, w, w, 1, 1e-5F, View<float, 2>(memory.data(), {2, 8}, {16, 2}), r, r), Error);
  EXPECT_THROW(layer_norm(ctx, x, w, w, 1, 1e-5F, x, r, {}), Error);
  const View<float, 2> partial(memory.data(), {1, 16});
  EXPECT_THROW(layer_norm_backward(ctx, x, x, w, r, r, 1, x, false, w, r, partial), Error);
  EXPECT_THROW(layer_norm_backward(ctx, x, x, w, r, r, 1, x, false, w, w, View<float, 2>(memory.data(), {1, 8})),
               Error);
}

}  // namespace
}  // namespace keel
