#include "keel/kernels/bias/bias.h"

#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/bias/bias_ref.h"
#include "keel/kernels/common/chunks.h"
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
};
const Case kCases[] = {{1, 1},   {3, 15, 2, 1}, {63, 16},     {64, 65, 1, 3},
                       {65, 33}, {300, 257, 7}, {33, 132, 4}, {70, 1028}};

View<float, 1> flat(std::vector<float>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}};
}

TEST(BiasReference, BackwardIsTheComplexStepOfForward) {
  Random random(1);
  const auto x = widen<double>(random.normals(6)), b = widen<double>(random.normals(3)),
             dy = widen<double>(random.normals(6));
  const auto stepped = testing::complex_step_gradient(b, [&](const std::vector<std::complex<double>>& at) {
    const auto y = reference::add_bias({x.begin(), x.end()}, at);
    std::complex<double> sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  });
  testing::expect_same_gradient(reference::add_bias_backward(dy, 3), stepped, "db");
}

TEST(Bias, ForwardIsOneAddition) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.d));
    Random random(static_cast<uint64_t>(c.rows));
    const auto x = random.normals(c.rows * c.d);
    auto b = random.normals(c.d);
    for_each_context([&](Context& ctx) {
      GuardedMatrix y(c.rows, c.d, x, c.pad, c.misalign);
      add_bias(ctx, flat(b), y.view());
      EXPECT_EQ(y.values(), reference::add_bias(x, b));
      EXPECT_TRUE(y.intact());
    });
  }
}

TEST(Bias, BackwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.d));
    const auto dy = Random(static_cast<uint64_t>(c.d)).normals(c.rows * c.d);
    const auto expected = reference::add_bias_backward(widen<double>(dy), c.d);
    const auto terms = reference::add_bias_backward(widen<Magnitude>(dy), c.d);
    const double root = std::sqrt(static_cast<double>(c.rows));
    std::vector<float> first;
    for_each_context([&](Context& ctx) {
      GuardedMatrix gradient(c.rows, c.d, dy, c.pad, c.misalign), partial(chunk_count(c.rows), c.d, 1, 2);
      std::vector<float> db(c.d, 0.25F);
      add_bias_backward(ctx, gradient.view(), flat(db), partial.view());
      std::vector<double> sums;
      for (double v : expected) sums.push_back(0.25 + v);
      testing::expect_close(
          db, sums, [&](int64_t i) { return 4 * (1 + root) * kUnitFp32 * (0.25 + terms[i].value()); }, "db");
      EXPECT_TRUE(partial.intact());
      std::vector<float> in_two_steps(c.d, 0.25F);
      add_bias_backward(ctx, gradient.view(), flat(in_two_steps), partial.view(), RowSums::of_chunks);
      add_bias_backward(ctx, gradient.view(), flat(in_two_steps), partial.view(), RowSums::add_up);
      EXPECT_EQ(in_two_steps, db) << "chunks, then their sums";
      if (first.empty()) first = db;
      EXPECT_EQ(db, first) << "the same bits for any threads and instruction set";
    });
  }
}

TEST(Bias, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> memory(64);
  const View<float, 2> y(memory.data(), {2, 8}), partial(memory.data(), {1, 8});
  EXPECT_THROW(add_bias(ctx, View<const float, 1>(memory.data(), {7}), y), Error);
  EXPECT_THROW(add_bias_backward(ctx, y, View<float, 1>(memory.data(), {7}), partial), Error);
  EXPECT_THROW(add_bias_backward(ctx, y, View<float, 1>(memory.data(), {8}), y), Error);
}

}  // namespace
}  // namespace keel
