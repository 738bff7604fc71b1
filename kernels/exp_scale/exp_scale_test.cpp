#include "keel/kernels/exp_scale/exp_scale.h"

#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/exp_scale/exp_scale_ref.h"
#include "support/complex_step.h"
#include "support/contexts.h"
#include "support/numeric.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::Guarded;
using testing::kUnitFp32;
using testing::Random;
using testing::widen;

constexpr int64_t kSizes[] = {1, 3, 16, 33, kParallelElements + 5};

View<const float, 1> flat(const std::vector<float>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}};
}
View<float, 1> flat(Guarded<float>& v) {
  return {v.get(), {v.size()}};
}

TEST(ExpScaleReference, BackwardIsTheComplexStepOfForward) {
  Random random(1);
  const auto base = widen<double>(random.normals(5, 1)), s = widen<double>(random.normals(5)),
             dy = widen<double>(random.normals(5));
  const auto stepped = testing::complex_step_gradient(s, [&](const std::vector<std::complex<double>>& at) {
    const auto y = reference::exp_scale({base.begin(), base.end()}, at);
    std::complex<double> sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  });
  testing::expect_same_gradient(reference::exp_scale_backward(dy, reference::exp_scale(base, s)), stepped, "ds");
}

TEST(ExpScale, ForwardIsRoundedOnce) {
  for (int64_t n : kSizes) {
    SCOPED_TRACE("size " + std::to_string(n));
    Random random(static_cast<uint64_t>(n));
    auto base = random.normals(n, 512, 100), s = random.normals(n);
    // Small and large factors, a result that is subnormal, a start of zero.
    for (size_t i = 0; const float extreme : {0.0F, -30.0F, 60.0F, -95.0F, 1e-8F}) {
      if (i < s.size()) s[i++] = extreme;
    }
    if (n > 5) base[5] = -2;
    const auto exact = reference::exp_scale(widen<double>(base), widen<double>(s));
    for_each_context([&](Context& ctx) {
      Guarded<float> y(n, n % 3);
      exp_scale(ctx, flat(base), flat(s), flat(y));
      testing::expect_close(
          y.values(), exact, [&](int64_t i) { return (1 + 0x1p-20) * kUnitFp32 * std::abs(exact[i]) + 0x1p-150; }, "y");
      EXPECT_EQ(y.values()[0], base[0]) << "exp(0)";
      EXPECT_TRUE(y.intact());
    });
  }
}

TEST(ExpScale, BackwardIsRoundedOnce) {
  for (int64_t n : kSizes) {
    SCOPED_TRACE("size " + std::to_string(n));
    Random random(static_cast<uint64_t>(n));
    const auto y = random.normals(n, 512, 100), dy = random.normals(n), before = random.normals(n, 0, 300);
    const auto added = reference::exp_scale_backward(widen<double>(dy), widen<double>(y));
    std::vector<float> expected;
    for (int64_t i = 0; i < n; ++i) expected.push_back(static_cast<float>(before[i] + added[i]));
    for_each_context([&](Context& ctx) {
      Guarded<float> ds(n, n % 3);
      ds.assign(before);
      exp_scale_backward(ctx, flat(dy), flat(y), flat(ds));
      EXPECT_EQ(ds.values(), expected);
      EXPECT_TRUE(ds.intact());
    });
  }
}

TEST(ExpScale, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> memory(16);
  const View<float, 1> three(memory.data(), {3}), two(memory.data(), {2}), strided(memory.data(), {3}, {2});
  EXPECT_THROW(exp_scale(ctx, two, three, three), Error);
  EXPECT_THROW(exp_scale(ctx, three, two, three), Error);
  EXPECT_THROW(exp_scale(ctx, three, three, strided), Error);
  EXPECT_THROW(exp_scale_backward(ctx, two, three, three), Error);
  EXPECT_THROW(exp_scale_backward(ctx, three, three, two), Error);
}

}  // namespace
}  // namespace keel
