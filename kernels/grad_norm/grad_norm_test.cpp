#include "keel/kernels/grad_norm/grad_norm.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/grad_norm/grad_norm_ref.h"
#include "support/contexts.h"
#include "support/numeric.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

StepScalars start(double clip, double weight_sum = 10, double loss_sum = 25) {
  StepScalars s{};
  s.clip = clip;
  s.weight_sum = weight_sum;
  s.loss_sum = loss_sum;
  s.grad_norm = s.grad_scale = std::numeric_limits<double>::quiet_NaN();
  s.non_finite = -1;
  return s;
}

StepScalars run(Context& ctx, const std::vector<float>& g, StepScalars s, int64_t misalign = 0) {
  const auto size = static_cast<int64_t>(g.size());
  testing::Guarded<float> memory(size, misalign);
  memory.assign(g);
  testing::Guarded<double> partial(chunk_count(size, kGradNormChunk));
  grad_norm(ctx, {memory.get(), {size}}, {&s, {1}}, {partial.get(), {partial.size()}});
  EXPECT_TRUE(partial.intact());
  return s;
}

TEST(GradNorm, AgreesWithTheReference) {
  for (int64_t size : {1L, 7L, 33L, kGradNormChunk - 1, kGradNormChunk, kGradNormChunk + 1, 3 * kGradNormChunk + 17}) {
    SCOPED_TRACE("size " + std::to_string(size));
    const auto g = Random(static_cast<uint64_t>(size)).normals(size, 0.1, 2);
    for (double clip : {1e-3, 1e9, kInfinity}) {
      StepScalars expected = start(clip);
      reference::grad_norm(g, expected);
      EXPECT_EQ(expected.grad_scale < 0.1, clip < 1);  // both branches are met
      const double tolerance = 4 * std::sqrt(static_cast<double>(size)) * 0x1p-53;
      StepScalars one_thread{};
      for_each_context([&](Context& ctx) {
        const StepScalars s = run(ctx, g, start(clip), size % 3);
        EXPECT_TRUE(testing::is_close(s.grad_norm, expected.grad_norm, tolerance * expected.grad_norm)) << s.grad_norm;
        EXPECT_TRUE(testing::is_close(s.grad_scale, expected.grad_scale, (tolerance + 0x1p-51) * expected.grad_scale));
        EXPECT_EQ(s.non_finite, 0);
        if (ctx.threads() == 1) one_thread = s;
        EXPECT_EQ(s.grad_norm, one_thread.grad_norm) << "one thread";
      });
    }
  }
}

TEST(GradNorm, LargeGradientsDoNotOverflow) {
  Context ctx(1);
  const StepScalars s = run(ctx, std::vector<float>(4, 0x1p126F), start(1, 1));
  EXPECT_EQ(s.grad_norm, 0x1p127);
  EXPECT_EQ(s.non_finite, 0);
}

TEST(GradNorm, NonFiniteStepsAreFlagged) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> fine(2 * kGradNormChunk + 5, 0.5F);
  for_each_context([&](Context& ctx) {
    EXPECT_EQ(run(ctx, fine, start(1)).non_finite, 0);
    for (size_t at : {size_t{0}, size_t{kGradNormChunk}, fine.size() - 1}) {
      for (float bad : {kNan, static_cast<float>(kInfinity), -static_cast<float>(kInfinity)}) {
        std::vector<float> g = fine;
        g[at] = bad;
        EXPECT_EQ(run(ctx, g, start(1)).non_finite, 1) << bad << " at " << at;
      }
    }
    EXPECT_EQ(run(ctx, fine, start(1, 10, kNan)).non_finite, 1);
    EXPECT_EQ(run(ctx, fine, start(1, 10, kInfinity)).non_finite, 1);
    EXPECT_EQ(run(ctx, fine, start(1, 0)).non_finite, 1);
    EXPECT_EQ(run(ctx, fine, start(1, kNan)).non_finite, 1);
  });
}

TEST(GradNorm, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> g(kGradNormChunk + 1);
  std::vector<double> partial(2);
  StepScalars s = start(1);
  EXPECT_THROW(grad_norm(ctx, {g.data(), {kGradNormChunk + 1}}, {&s, {1}}, {partial.data(), {1}}), Error);
  EXPECT_THROW(grad_norm(ctx, {g.data(), {kGradNormChunk + 1}}, {}, {partial.data(), {2}}), Error);
}

}  // namespace
}  // namespace keel
