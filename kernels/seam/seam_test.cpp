#include "keel/kernels/seam/seam.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/seam/seam_ref.h"
#include "keel/kernels/seam/seam_test_support.h"
#include "support/contexts.h"
#include "support/guarded_matrix.h"
#include "support/magnitude.h"

namespace keel {
namespace {

using namespace seam_testing;
using testing::for_each_context;
using testing::Guarded;
using testing::GuardedMatrix;
using testing::kUnitFp32;
using testing::Magnitude;

// ---- forward

struct Outputs {
  std::vector<float> y, u, outer_r, inner_r, outer_mean;
  bool operator==(const Outputs&) const = default;
};

enum class InPlace { none, y_is_x, y_is_F, u_is_F };

Outputs run_forward(Context& ctx, const Case& c, Problem p, InPlace in_place) {
  GuardedMatrix x(c.rows, c.d, p.x, c.pad, c.misalign), F(c.rows, c.d, p.F, c.pad + 2 * c.skew, c.misalign);
  GuardedMatrix y_memory(c.rows, c.d, c.pad, c.misalign), u_memory(c.rows, c.d, c.pad, c.misalign + c.skew);
  GuardedMatrix& y = in_place == InPlace::y_is_x ? x : in_place == InPlace::y_is_F ? F : y_memory;
  GuardedMatrix& u = in_place == InPlace::u_is_F ? F : u_memory;
  Guarded<float> outer_r(c.rows, 1), inner_r(c.rows), outer_mean(c.rows);
  SeamForward seam{.x = x.view(), .F = F.view(), .a = flat(p.a), .b = flat(p.b)};
  seam.outer_gain = flat(p.outer_gain);
  seam.inner_gain = flat(p.inner_gain);
  seam.outer_bias = flat(p.outer_bias);
  seam.skip_scale = flat(p.skip_scale);
  seam.branch_scale = flat(p.branch_scale);
  seam.inner_factor = static_cast<float>(p.form.factor);
  seam.outer_eps = seam.inner_eps = p.eps;
  seam.y = y.view();
  if (p.form.layer) seam.outer_mean = {outer_mean.get(), {c.rows}};
  if (p.form.outer) seam.outer_r = {outer_r.get(), {c.rows}};
  if (p.form.inner) {
    seam.inner_r = {inner_r.get(), {c.rows}};
    seam.u = u.view();
  }
  seam_forward(ctx, seam);
  EXPECT_TRUE(y.intact() && u.intact() && outer_r.intact() && inner_r.intact() && outer_mean.intact());
  Outputs out{.y = y.values(), .u = {}, .outer_r = {}, .inner_r = {}, .outer_mean = {}};
  if (p.form.layer) out.outer_mean = outer_mean.values();
  if (p.form.outer) out.outer_r = outer_r.values();
  if (p.form.inner) {
    out.u = u.values();
    out.inner_r = inner_r.values();
  }
  return out;
}

struct ForwardTolerance {
  std::vector<double> y, u;              ///< absolute, per element
  std::vector<double> outer_r, inner_r;  ///< relative, per row
  std::vector<double> outer_mean;        ///< absolute, per row
};

/// First-order rounding of z carried through both norms, row by row. `u` is the unit roundoff.
ForwardTolerance forward_tolerance(const Problem& p, const reference::SeamOutputs<double>& exact) {
  constexpr double u = kUnitFp32, kFactor = 4;
  const double root_d = std::sqrt(static_cast<double>(p.d));
  ForwardTolerance t;
  const auto sum_error = [&](const std::vector<double>& v, const std::vector<double>& error, int64_t r) {
    double squares = 0, moved = 0;
    for (int64_t i = r * p.d; i < (r + 1) * p.d; ++i) {
      squares += v[i] * v[i];
      moved += std::abs(v[i]) * error[i];
    }
    return (squares == 0 ? 0 : moved / squares) + (root_d / 2 + 3) * u;  // of the inverse root, relative
  };
  const reference::Seam<Magnitude> terms = p.as<Magnitude>();
  std::vector<double> z_error, centred = exact.z;
  for (const Magnitude& term : terms.sum())
    z_error.push_back((p.form.skip || p.form.branch ? 3 : 2) * u * term.value());
  for (int64_t r = 0; r < p.rows; ++r) {
    if (p.form.layer) {  // the mean moves every element of the row, and its own rounding too
      double sum_error_of_mean = 0;
      for (int64_t i = r * p.d; i < (r + 1) * p.d; ++i) {
        sum_error_of_mean += z_error[i] + (root_d + 1) * u * std::abs(exact.z[i]);
      }
      const double mean_error = sum_error_of_mean / static_cast<double>(p.d);
      t.outer_mean.push_back(kFactor * mean_error);
      for (int64_t i = r * p.d; i < (r + 1) * p.d; ++i) {
        centred[i] -= exact.outer_mean[r];
        z_error[i] += mean_error + u * std::abs(centred[i]);
      }
    }
    const double outer = sum_error(centred, z_error, r);
    std::vector<double> y_error(p.rows * p.d);
    for (int64_t i = r * p.d; i < (r + 1) * p.d; ++i) {
      const double bias = p.form.layer ? std::abs(p.outer_bias[i % p.d]) : 0;
      const double normed = std::abs(exact.y[i]) + 2 * bias;  // at least the product that the bias is added to
      y_error[i] = p.form.outer
                       ? std::abs(exact.outer_r[r] * p.outer_gain[i % p.d]) * z_error[i] + normed * (outer + 2 * u)
                       : z_error[i];
      t.y.push_back(kFactor * y_error[i]);
    }
    t.outer_r.push_back(kFactor * outer);
    if (!p.form.inner) continue;
    const double inner = sum_error(exact.y, y_error, r);
    t.inner_r.push_back(kFactor * inner);
    for (int64_t i = r * p.d; i < (r + 1) * p.d; ++i) {
      t.u.push_back(kFactor * (std::abs(p.form.factor * exact.inner_r[r] * p.inner_gain[i % p.d]) * y_error[i] +
                               std::abs(exact.u[i]) * (inner + 3 * u)));
    }
  }
  return t;
}

void check_forward(const Case& c, const Form& form) {
  const Problem p(c, form);
  const auto exact = reference::seam_forward(p.as<double>());
  const ForwardTolerance tolerance = forward_tolerance(p, exact);
  for_each_context([&](Context& ctx) {
    const Outputs out = run_forward(ctx, c, p, InPlace::none);
    testing::expect_close(
        out.y, exact.y, [&](int64_t i) { return tolerance.y[i]; }, "y");
    testing::expect_close(
        out.u, exact.u, [&](int64_t i) { return tolerance.u[i]; }, "u");
    testing::expect_close(
        out.outer_r, exact.outer_r, [&](int64_t r) { return tolerance.outer_r[r] * exact.outer_r[r]; }, "outer_r");
    testing::expect_close(
        out.inner_r, exact.inner_r, [&](int64_t r) { return tolerance.inner_r[r] * exact.inner_r[r]; }, "inner_r");
    testing::expect_close(
        out.outer_mean, exact.outer_mean, [&](int64_t r) { return tolerance.outer_mean[r]; }, "outer_mean");
    EXPECT_EQ(run_forward(ctx, c, p, InPlace::y_is_x), out) << "y is x";
    EXPECT_EQ(run_forward(ctx, c, p, InPlace::y_is_F), out) << "y is F";
    if (form.inner) {
      EXPECT_EQ(run_forward(ctx, c, p, InPlace::u_is_F), out) << "u is F";
    }
    if (ctx.threads() > 1) {
      Context one = testing::single_threaded(ctx);
      EXPECT_EQ(run_forward(one, c, p, InPlace::none), out) << "one thread";
    } else {
      Case elsewhere = c;
      elsewhere.misalign += 1;
      EXPECT_EQ(run_forward(ctx, elsewhere, p, InPlace::none), out) << "elsewhere in memory";
    }
  });
}

TEST(Seam, ForwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    for (const Form& form : kForms) {
      SCOPED_TRACE(name_of(c, form));
      check_forward(c, form);
    }
  }
}

TEST(Seam, InnerNormAgainHasTheSameBits) {
  for (const Case& c : kCases) {
    for (const Form& form : kForms) {
      if (!form.inner) continue;
      SCOPED_TRACE(name_of(c, form));
      Problem p(c, form);
      for_each_context([&](Context& ctx) {
        Outputs once = run_forward(ctx, c, p, InPlace::none);
        GuardedMatrix y(c.rows, c.d, once.y, c.pad, c.misalign);
        GuardedMatrix u(c.rows, c.d, c.pad + c.skew, c.misalign + c.skew), same(c.rows, c.d, once.y, c.pad, c.misalign);
        const auto factor = static_cast<float>(form.factor);
        seam_inner_again(ctx, y.view(), flat(p.inner_gain), factor, flat(once.inner_r), u.view());
        seam_inner_again(ctx, same.view(), flat(p.inner_gain), factor, flat(once.inner_r), same.view());
        EXPECT_TRUE(u.intact() && same.intact());
        EXPECT_EQ(u.values(), once.u);
        EXPECT_EQ(same.values(), once.u) << "in place";
      });
    }
  }
}

// ---- backward

/// What a caller passes beside the form.
struct Wanted {
  bool Ds = true, Du = true, scales = false;
  bool dx_is_Ds = false, dF_is_Du = false, dF_is_F = false;
  bool in_two_steps = false;  // of RowSums
};

struct Gradients {
  std::vector<float> dx, dF, d_outer_gain, d_inner_gain, d_outer_bias, d_skip_scale, d_branch_scale, d_a, d_b;
  bool operator==(const Gradients&) const = default;
};

constexpr float kStart = 0.25F;  // what the accumulated gradients hold before

Gradients run_backward(Context& ctx, const Case& c, Problem p, reference::SeamSaved<float> saved,
                       std::vector<float> y_values, const Wanted& wanted) {
  const bool vectors = p.form.layer || p.form.skip || p.form.branch;
  GuardedMatrix x(c.rows, c.d, p.x, c.pad, c.misalign), F(c.rows, c.d, p.F, c.pad, c.misalign);
  GuardedMatrix y(c.rows, c.d, y_values, c.pad + c.skew, c.misalign);
  GuardedMatrix Ds(c.rows, c.d, p.Ds, c.pad, c.misalign), Du(c.rows, c.d, p.Du, c.pad + 2 * c.skew, c.misalign);
  GuardedMatrix dx_memory(c.rows, c.d, c.pad, c.misalign), dF_memory(c.rows, c.d, c.pad, c.misalign);
  GuardedMatrix partial(chunk_count(c.rows), seam_partial_columns(c.d, vectors), 0, c.misalign);
  GuardedMatrix& dx = wanted.dx_is_Ds ? Ds : dx_memory;
  GuardedMatrix& dF = wanted.dF_is_Du ? Du : wanted.dF_is_F ? F : dF_memory;
  Gradients result;
  result.d_outer_gain.assign(p.form.outer ? c.d : 0, kStart);
  result.d_inner_gain.assign(p.form.inner ? c.d : 0, kStart);
  result.d_outer_bias.assign(p.form.layer ? c.d : 0, kStart);
  result.d_skip_scale.assign(p.form.skip ? c.d : 0, kStart);
  result.d_branch_scale.assign(p.form.branch ? c.d : 0, kStart);
  result.d_a.assign(wanted.scales ? 1 : 0, kStart);
  result.d_b.assign(wanted.scales ? 1 : 0, kStart);

  SeamBackward seam{.a = flat(p.a), .b = flat(p.b), .outer_gain = flat(p.outer_gain), .inner_gain = flat(p.inner_gain)};
  if (p.form.outer || wanted.scales || p.form.skip) seam.x = x.view();
  if (p.form.outer || wanted.scales || p.form.branch) seam.F = F.view();
  seam.outer_bias = flat(p.outer_bias);
  seam.skip_scale = flat(p.skip_scale);
  seam.branch_scale = flat(p.branch_scale);
  seam.inner_factor = static_cast<float>(p.form.factor);
  if (p.form.layer) seam.outer_mean = flat(saved.outer_mean);
  if (p.form.inner && !p.form.outer) seam.y = y.view();
  seam.outer_eps = seam.inner_eps = p.eps;
  if (p.form.outer) seam.outer_r = flat(saved.outer_r);
  if (p.form.inner) seam.inner_r = flat(saved.inner_r);
  if (wanted.Ds) seam.Ds = Ds.view();
  if (wanted.Du) seam.Du = Du.view();
  seam.dx = dx.view();
  seam.dF = dF.view();
  seam.d_outer_gain = flat(result.d_outer_gain);
  seam.d_inner_gain = flat(result.d_inner_gain);
  seam.d_outer_bias = flat(result.d_outer_bias);
  seam.d_skip_scale = flat(result.d_skip_scale);
  seam.d_branch_scale = flat(result.d_branch_scale);
  seam.d_a = flat(result.d_a);
  seam.d_b = flat(result.d_b);
  seam.partial = partial.view();
  if (wanted.in_two_steps) {
    seam.sums = RowSums::of_chunks;
    seam_backward(ctx, seam);
    seam.sums = RowSums::add_up;
  }
  seam_backward(ctx, seam);
  EXPECT_TRUE(dx.intact() && dF.intact() && partial.intact());
  result.dx = dx.values();
  result.dF = dF.values();
  return result;
}

std::vector<float> narrow(const std::vector<double>& v) {
  return {v.begin(), v.end()};
}

struct BackwardCheck {
  BackwardCheck(const Case& c_, const Form& form, const Wanted& wanted_) : c(c_), p(c_, form), wanted(wanted_) {
    const auto forward = reference::seam_forward(p.as<double>());
    saved = {narrow(forward.outer_r), narrow(forward.inner_r), narrow(forward.outer_mean)};
    y = narrow(forward.y);
    if (!wanted.Ds) std::fill(p.Ds.begin(), p.Ds.end(), 0.0F);
    if (!wanted.Du) std::fill(p.Du.begin(), p.Du.end(), 0.0F);
    exact = reference::seam_backward(p.as<double>(), as<double>(saved), widen<double>(p.Ds), widen<double>(p.Du));
    terms = reference::seam_backward(p.as<Magnitude>(), as<Magnitude>(saved), widen<Magnitude>(p.Ds),
                                     widen<Magnitude>(p.Du));
  }

  template <class S>
  static reference::SeamSaved<S> as(const reference::SeamSaved<float>& saved) {
    return {widen<S>(saved.outer_r), widen<S>(saved.inner_r), widen<S>(saved.outer_mean)};
  }

  Gradients run(Context& ctx, const Wanted& with) const { return run_backward(ctx, c, p, saved, y, with); }

  void expect_right(const Gradients& g) const {
    const double root_d = std::sqrt(static_cast<double>(c.d)), root_rows = std::sqrt(static_cast<double>(c.rows));
    // Longest way from the operands to dx: z, y, p, two products and a sum over d, twice, and the last factors.
    const double one = 4 * (16 + 2 * root_d) * kUnitFp32, summed = one + 4 * root_rows * kUnitFp32;
    const auto tolerance = [](const std::vector<Magnitude>& m, double factor) {
      return [&m, factor](int64_t i) { return factor * m[i].value(); };
    };
    testing::expect_close(g.dx, exact.dx, tolerance(terms.dx, one), "dx");
    testing::expect_close(g.dF, exact.dF, tolerance(terms.dF, one), "dF");
    expect_accumulated(g.d_outer_gain, exact.d_outer_gain, terms.d_outer_gain, summed, "d_outer_gain");
    expect_accumulated(g.d_inner_gain, exact.d_inner_gain, terms.d_inner_gain, summed, "d_inner_gain");
    expect_accumulated(g.d_outer_bias, exact.d_outer_bias, terms.d_outer_bias, summed, "d_outer_bias");
    expect_accumulated(g.d_skip_scale, exact.d_skip_scale, terms.d_skip_scale, summed, "d_skip_scale");
    expect_accumulated(g.d_branch_scale, exact.d_branch_scale, terms.d_branch_scale, summed, "d_branch_scale");
    if (!wanted.scales) return;
    expect_accumulated(g.d_a, {exact.d_a}, {terms.d_a}, summed + 4 * root_d * kUnitFp32, "d_a");
    expect_accumulated(g.d_b, {exact.d_b}, {terms.d_b}, summed + 4 * root_d * kUnitFp32, "d_b");
  }

  static void expect_accumulated(const std::vector<float>& actual, std::vector<double> expected,
                                 const std::vector<Magnitude>& terms, double factor, const std::string& what) {
    for (double& e : expected) e += kStart;
    testing::expect_close(
        actual, expected, [&](int64_t i) { return factor * (kStart + terms[i].value()); }, what);
  }

  Case c;
  Problem p;
  Wanted wanted;
  reference::SeamSaved<float> saved;
  std::vector<float> y;
  reference::SeamGradients<double> exact;
  reference::SeamGradients<Magnitude> terms;
};

void check_backward(const Case& c, const Form& form, const Wanted& wanted) {
  const BackwardCheck check(c, form, wanted);
  for_each_context([&](Context& ctx) {
    const Gradients g = check.run(ctx, wanted);
    check.expect_right(g);
    Wanted in_place = wanted;
    in_place.dx_is_Ds = wanted.Ds;
    in_place.dF_is_Du = wanted.Du;
    EXPECT_EQ(check.run(ctx, in_place), g) << "dx is Ds, dF is Du";
    in_place.dF_is_Du = false;
    in_place.dF_is_F = true;
    EXPECT_EQ(check.run(ctx, in_place), g) << "dF is F";
    if (ctx.threads() > 1) {
      Context one = testing::single_threaded(ctx);
      EXPECT_EQ(check.run(one, wanted), g) << "one thread";
    } else {
      Wanted in_two_steps = wanted;
      in_two_steps.in_two_steps = true;
      EXPECT_EQ(check.run(ctx, in_two_steps), g) << "chunks, then their sums";
      BackwardCheck elsewhere = check;
      elsewhere.c.misalign += 1;
      EXPECT_EQ(elsewhere.run(ctx, wanted), g) << "elsewhere in memory";
    }
  });
}

TEST(Seam, BackwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    for (const Form& form : kForms) {
      SCOPED_TRACE(name_of(c, form));
      check_backward(c, form, {});
    }
  }
}

TEST(Seam, BackwardWithGradientsOfTheScales) {
  for (const Case& c : kCases) {
    for (const Form& form : kForms) {
      SCOPED_TRACE(name_of(c, form));
      check_backward(c, form, {.scales = true});
    }
  }
}

TEST(Seam, BackwardWithOneGradientOnly) {
  const Case c{67, 24, 8, 0.5, 1, 3};
  for (const Form& form : kForms) {
    for (bool scales : {false, true}) {
      SCOPED_TRACE(name_of(c, form) + (scales ? ", scales" : ""));
      check_backward(c, form, {.Ds = false, .scales = scales});
      check_backward(c, form, {.Du = false, .scales = scales});
    }
  }
}

TEST(Seam, NothingToDo) {
  for_each_context([&](Context& ctx) {
    std::vector<float> gain(8, 1.0F), d_gain(8, 3.0F), scale(1, 1.0F);
    const View<float, 2> none(nullptr, {0, 8});
    SeamForward forward{.x = none, .F = none, .a = flat(scale), .b = flat(scale), .outer_gain = flat(gain)};
    forward.y = none;
    forward.outer_r = {nullptr, {0}};
    seam_forward(ctx, forward);
    SeamBackward backward{.a = flat(scale), .b = flat(scale), .outer_gain = flat(gain)};
    backward.x = backward.dx = none;
    backward.F = backward.dF = none;
    backward.outer_r = {nullptr, {0}};
    backward.d_outer_gain = flat(d_gain);
    backward.partial = {nullptr, {0, 18}};
    seam_backward(ctx, backward);
    EXPECT_EQ(d_gain, std::vector<float>(8, 3.0F));
  });
}

void expect_shape_error(const std::string& what, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error: " << what;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::shape);
    EXPECT_EQ(e.what(), what);
  }
}

TEST(Seam, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> memory(64);
  const View<float, 2> x(memory.data(), {2, 8});
  const View<float, 1> gain(memory.data(), {8}), r(memory.data(), {2}), scale(memory.data(), {1});
  SeamForward forward{.x = x, .F = x, .a = scale, .b = scale, .outer_gain = gain};
  forward.y = x;
  expect_shape_error("outer_r is [0], not [2] (seam_forward)", [&] { seam_forward(ctx, forward); });
  forward.outer_r = r;
  forward.inner_gain = gain;
  forward.inner_r = r;
  expect_shape_error("u is [0, 0], not [2, 8] (seam_forward)", [&] { seam_forward(ctx, forward); });

  SeamBackward backward{.a = scale, .b = scale};
  backward.dx = x;
  backward.dF = x;
  backward.partial = {memory.data(), {1, 18}};
  expect_shape_error("Ds and Du are both missing (seam_backward)", [&] { seam_backward(ctx, backward); });
  backward.Ds = x;
  backward.outer_gain = gain;
  backward.outer_r = r;
  backward.d_outer_gain = gain;
  expect_shape_error("x is [0, 0], not [2, 8] (seam_backward)", [&] { seam_backward(ctx, backward); });
  backward.x = x;
  backward.F = x;
  backward.partial = {memory.data(), {1, 16}};
  expect_shape_error("partial is [1, 16], not [1, 18] (seam_backward)", [&] { seam_backward(ctx, backward); });
  forward.inner_gain = {};
  forward.outer_bias = gain;
  expect_shape_error("outer_mean is [0], not [2] (seam_forward)", [&] { seam_forward(ctx, forward); });
  forward.inner_gain = gain;
  forward.u = x;
  expect_shape_error("an inner norm behind a LayerNorm (seam_forward)", [&] { seam_forward(ctx, forward); });
  forward.inner_gain = forward.outer_gain = {};
  expect_shape_error("outer_bias without outer_gain (seam_forward)", [&] { seam_forward(ctx, forward); });
  backward.outer_gain = {};
  backward.d_skip_scale = gain;
  backward.partial = {memory.data(), {1, 18}};
  expect_shape_error("skip_scale is [0], not [8] (seam_backward)", [&] { seam_backward(ctx, backward); });
}

}  // namespace
}  // namespace keel
