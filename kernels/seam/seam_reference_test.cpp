#include <gtest/gtest.h>

#include "keel/kernels/seam/seam_ref.h"
#include "keel/kernels/seam/seam_test_support.h"
#include "support/complex_step.h"

namespace keel {
namespace {

using namespace seam_testing;

TEST(SeamReference, BackwardIsTheComplexStepOfForward) {
  const Case c{3, 5, 1.7, -0.6, 0, 0, 0.2, 0.3};
  for (const Form& form : kForms) {
    SCOPED_TRACE(name_of(c, form));
    const Problem p(c, form);
    const auto seam = p.as<double>();
    const auto forward = reference::seam_forward(seam);
    const auto Ds = widen<double>(p.Ds), Du = widen<double>(p.Du);
    const auto backward = reference::seam_backward(
        seam, reference::SeamSaved<double>{forward.outer_r, forward.inner_r, forward.outer_mean}, Ds, Du);

    using Complex = std::complex<double>;
    auto at = p.as<Complex>();
    const auto loss = [&] {
      const auto out = reference::seam_forward(at);
      Complex sum = 0;
      for (size_t i = 0; i < Ds.size(); ++i) sum += Ds[i] * out.y[i] + Du[i] * (form.inner ? out.u[i] : out.y[i]);
      return sum;
    };
    const auto gradient = [&](std::vector<Complex>& field, const std::vector<double>& value) {
      const std::vector<Complex> saved = field;
      auto g = testing::complex_step_gradient(value, [&](const std::vector<Complex>& v) {
        field = v;
        return loss();
      });
      field = saved;
      return g;
    };
    testing::expect_same_gradient(backward.dx, gradient(at.x, seam.x), "dx");
    testing::expect_same_gradient(backward.dF, gradient(at.F, seam.F), "dF");
    if (form.outer)
      testing::expect_same_gradient(backward.d_outer_gain, gradient(at.outer_gain, seam.outer_gain), "d_outer_gain");
    if (form.inner)
      testing::expect_same_gradient(backward.d_inner_gain, gradient(at.inner_gain, seam.inner_gain), "d_inner_gain");
    if (form.layer)
      testing::expect_same_gradient(backward.d_outer_bias, gradient(at.outer_bias, seam.outer_bias), "d_outer_bias");
    if (form.skip)
      testing::expect_same_gradient(backward.d_skip_scale, gradient(at.skip_scale, seam.skip_scale), "d_skip_scale");
    if (form.branch) {
      testing::expect_same_gradient(backward.d_branch_scale, gradient(at.branch_scale, seam.branch_scale),
                                    "d_branch_scale");
    }
    testing::expect_same_gradient({backward.d_a},
                                  testing::complex_step_gradient({seam.a},
                                                                 [&](const auto& v) {
                                                                   at.a = v[0];
                                                                   return loss();
                                                                 }),
                                  "d_a");
    at.a = seam.a;
    testing::expect_same_gradient({backward.d_b},
                                  testing::complex_step_gradient({seam.b},
                                                                 [&](const auto& v) {
                                                                   at.b = v[0];
                                                                   return loss();
                                                                 }),
                                  "d_b");
  }
}

TEST(SeamReference, WithoutEpsTheGradientIsOrthogonalToTheSum) {
  const Problem p({4, 32, 16, 1, 0, 0, 0, 0}, {true, true});
  auto seam = p.as<double>();
  for (int64_t c = 0; c < p.d; ++c) seam.x[p.d + c] = 1 + 0.1 * static_cast<double>(c);  // no row of zeros here
  const auto out = reference::seam_forward(seam);
  const auto gradients = reference::seam_backward(seam, reference::SeamSaved<double>{out.outer_r, out.inner_r, {}},
                                                  widen<double>(p.Ds), widen<double>(p.Du));
  for (int64_t r = 0; r < p.rows; ++r) {
    double dot = 0, dz2 = 0, z2 = 0;
    for (int64_t i = r * p.d; i < (r + 1) * p.d; ++i) {
      dot += gradients.dx[i] * out.z[i];
      dz2 += gradients.dx[i] * gradients.dx[i];
      z2 += out.z[i] * out.z[i];
    }
    EXPECT_LT(std::abs(dot), 1e-14 * std::sqrt(dz2 * z2));
  }
}

}  // namespace
}  // namespace keel
