#include "keel/kernels/softmax_weights/softmax_weights.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/softmax_weights/softmax_weights_ref.h"
#include "support/complex_step.h"
#include "support/errors.h"
#include "support/numeric.h"

namespace keel {
namespace {

using testing::Guarded;
using testing::kUnitFp32;
using testing::Random;
using testing::widen;

template <class Body>
void for_each_isa(Body body) {
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (!isa_available(isa)) continue;
    SCOPED_TRACE(isa_name(isa));
    body(isa);
  }
}

HostView<const float, 1> view(const std::vector<float>& z) {
  return {z.data(), {std::ssize(z)}};
}

TEST(SoftmaxWeightsReference, BackwardIsTheComplexStepOfForward) {
  const auto z = widen<double>(Random(1).normals(9)), dw = widen<double>(Random(2).normals(9));
  const auto backward = reference::softmax_weights_backward(dw, reference::softmax_weights(z, 2, 0.7), 0.7);
  const auto stepped = testing::complex_step_gradient(z, [&](const std::vector<std::complex<double>>& at) {
    const auto w = reference::softmax_weights(at, 2, 0.7);
    std::complex<double> sum = 0;
    for (size_t i = 0; i < w.size(); ++i) sum += dw[i] * w[i];
    return sum;
  });
  testing::expect_same_gradient(backward, stepped, "dz");
}

TEST(SoftmaxWeights, AreTheReference) {
  for (const int64_t V : {1, 7, 16, 127, 128, 129, 1000, 5003}) {
    for (const double temperature : {1.0, 0.3, 50.0}) {
      const std::vector<float> z = Random(V).normals(V, 100, 4);
      const float largest = *std::max_element(z.begin(), z.end());
      const auto expected = reference::softmax_weights(widen<double>(z), largest, temperature);
      for_each_isa([&](Isa isa) {
        const int64_t blocks = (V + kWeightsOfASum - 1) / kWeightsOfASum;
        Guarded<float> w(V, 1), sums(blocks, 3);
        softmax_weights(isa, view(z), largest, 1 / temperature, {w.get(), {V}}, {sums.get(), {blocks}});
        // The exponent is rounded to fp32, which moves the result by as much as that is large; then 2 ulp.
        testing::expect_close(
            w.values(), expected,
            [&](int64_t i) {
              const double exponent = (largest - z[i]) / temperature;
              return expected[i] * (exponent + 4) * kUnitFp32 * 1.01 + 1e-40;
            },
            "w");
        for (int64_t b = 0; b < blocks; ++b) {
          double sum = 0;
          for (int64_t i = b * kWeightsOfASum; i < std::min(V, (b + 1) * kWeightsOfASum); ++i) sum += w.get()[i];
          EXPECT_TRUE(testing::is_close(sums.get()[b], sum, testing::sum_tolerance(sum, kWeightsOfASum, sum))) << b;
        }
        EXPECT_TRUE(w.intact() && sums.intact());
      });
    }
  }
}

TEST(SoftmaxWeights, ExtremesStayFinite) {
  for_each_isa([&](Isa isa) {
    std::vector<float> z{3e38F, -3e38F, 3.3e38F}, w(3), sum(1);
    softmax_weights(isa, view(z), z[2], 1e300, {w.data(), {3}}, {sum.data(), {1}});
    EXPECT_EQ(w, (std::vector<float>{0, 0, 1}));
    EXPECT_EQ(sum[0], 1);
  });
}

TEST(LargestLogit, IsTheFirstOfEqualOnes) {
  for (const int64_t V : {1, 15, 33, 255, 256, 257, 1000}) {
    for (const int64_t at : {int64_t{0}, V / 2, V - 1}) {
      std::vector<float> z = Random(V).normals(V, -5);
      z[at] = z[V - 1] = 7;
      for_each_isa([&](Isa isa) {
        const LargestLogit largest = largest_logit(isa, view(z));
        EXPECT_TRUE(largest.all_finite);
        EXPECT_EQ(largest.value, 7);
        EXPECT_EQ(largest.id, at);
      });
    }
  }
}

TEST(LargestLogit, FindsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const float broken : {kInfinity, -kInfinity, kNaN}) {
    for (const int64_t at : {0, 5, 16, 99}) {
      std::vector<float> z(100, 1);
      z[at] = broken;
      for_each_isa([&](Isa isa) { EXPECT_FALSE(largest_logit(isa, view(z)).all_finite) << broken << " " << at; });
    }
  }
}

TEST(SoftmaxWeights, ExtentsThatDisagreeAreAnError) {
  std::vector<float> z(200), w(200), sums(2);
  const auto refused = [&](int64_t V, int64_t of_w, int64_t blocks) {
    testing::expect_error(ErrorKind::shape, "has not the extent", [&] {
      softmax_weights(Isa::generic, {z.data(), {V}}, 0, 1, {w.data(), {of_w}}, {sums.data(), {blocks}});
    });
  };
  refused(200, 199, 2);
  refused(200, 200, 1);
  refused(128, 128, 2);
  testing::expect_error(ErrorKind::shape, "z", [&] { (void)largest_logit(Isa::generic, {z.data(), {0}}); });
}

}  // namespace
}  // namespace keel
