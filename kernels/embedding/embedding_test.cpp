#include "keel/kernels/embedding/embedding.h"

#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/embedding/embedding_ref.h"
#include "support/complex_step.h"
#include "support/contexts.h"
#include "support/guarded_matrix.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::GuardedMatrix;
using testing::Random;
using testing::widen;

struct Case {
  int64_t tokens, vocab, d;
  int64_t misalign = 0;
};
const Case kCases[] = {{0, 3, 4},        {1, 1, 1},      {9, 4, 15, 1},    {40, 1, 64},
                       {300, 11, 65, 3}, {200, 50, 200}, {2000, 1000, 12}, {1500, 300'000, 4}};

/// Token ids of which half are 0, the others spread over the vocabulary.
std::vector<int32_t> draw_tokens(const Case& c) {
  Random random(static_cast<uint64_t>(13 * c.tokens + c.d));
  std::vector<int32_t> tokens;
  for (int64_t n = 0; n < c.tokens; ++n) {
    tokens.push_back(random.uniform() < 0.5 ? 0 : static_cast<int32_t>(random.integer(0, c.vocab - 1)));
  }
  return tokens;
}

View<const int32_t, 1> flat(const std::vector<int32_t>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}};
}

TEST(EmbeddingReference, BackwardIsTheComplexStepOfForward) {
  const std::vector<int32_t> tokens = {2, 0, 2, 3, 2};
  const int64_t d = 3, vocab = 4;
  Random random(1);
  const auto table = widen<double>(random.normals(vocab * d)), dy = widen<double>(random.normals(5 * d));
  const auto stepped = testing::complex_step_gradient(table, [&](const std::vector<std::complex<double>>& at) {
    const auto y = reference::embedding(tokens, at, d);
    std::complex<double> sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  });
  testing::expect_same_gradient(reference::embedding_backward(tokens, dy, vocab, d), stepped, "d_table");
}

TEST(Embedding, CopiesRows) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.d));
    const auto tokens = draw_tokens(c);
    const auto values = Random(4).normals(c.vocab * c.d);
    for_each_context([&](Context& ctx) {
      GuardedMatrix table(c.vocab, c.d, values, 0, c.misalign), y(c.tokens, c.d, 0, c.misalign);
      embedding(ctx, flat(tokens), table.view(), y.view());
      EXPECT_EQ(y.values(), reference::embedding(tokens, values, c.d));
      EXPECT_TRUE(y.intact());
    });
  }
}

// The same additions in the same order as the reference in fp32, whatever the number of threads: the same bits.
TEST(Embedding, BackwardAddsInTheOrderOfTheTokens) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.d));
    const auto tokens = draw_tokens(c);
    const auto dy_values = Random(5).normals(c.tokens * c.d);
    const auto expected = reference::embedding_backward(tokens, dy_values, c.vocab, c.d);
    for_each_context([&](Context& ctx) {
      GuardedMatrix dy(c.tokens, c.d, dy_values, 0, c.misalign);
      GuardedMatrix d_table(c.vocab, c.d, std::vector<float>(c.vocab * c.d, 0.0F), 0, c.misalign);
      embedding_backward(ctx, flat(tokens), dy.view(), d_table.view());
      EXPECT_EQ(d_table.values(), expected);
      EXPECT_TRUE(d_table.intact());
    });
  }
}

TEST(Embedding, BackwardAccumulates) {
  Context ctx = testing::test_context(2);
  const std::vector<int32_t> tokens = {1, 1};
  std::vector<float> dy = {1, 2, 10, 20}, d_table = {5, 6, 7, 8};
  embedding_backward(ctx, flat(tokens), View<float, 2>(dy.data(), {2, 2}), View<float, 2>(d_table.data(), {2, 2}));
  EXPECT_EQ(d_table, (std::vector<float>{5, 6, 18, 30}));
}

TEST(Embedding, ShapesThatDisagree) {
  Context ctx = testing::test_context(1);
  std::vector<float> memory(64);
  const std::vector<int32_t> tokens(2);
  const View<float, 2> table(memory.data(), {3, 8});
  EXPECT_THROW(embedding(ctx, flat(tokens), table, View<float, 2>(memory.data(), {2, 7})), Error);
  EXPECT_THROW(embedding_backward(ctx, flat(tokens), View<float, 2>(memory.data(), {3, 8}), table), Error);
  try {
    embedding(ctx, flat(tokens), table, View<float, 2>(memory.data(), {2, 8}, {9, 1}));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "y is not dense (embedding)");
  }
}

}  // namespace
}  // namespace keel
