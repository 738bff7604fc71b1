#include "keel/model/flops.h"

#include <gtest/gtest.h>

namespace keel {
namespace {

TEST(TrainFlops, AgainstACountByHand) {
  // One block, d 2, F 3, one head of 2, vocabulary 5, T 4: 16 + 18 + 10 parameters in products.
  const ModelConfig c = resolved(
      {.vocab_size = 5, .hidden_size = 2, .intermediate_size = 3, .num_hidden_layers = 1, .num_attention_heads = 1});
  EXPECT_EQ(count_parameters(c).in_products, 16 + 18 + 10);
  // Forward attention of 4 tokens: 10 query-key pairs, two products of 2 multiply-adds each.
  EXPECT_EQ(train_flops_per_token(c, 4), 6.0 * 44 + 3.0 * (10 * 2 * 2 * 2) / 4);
  ModelConfig windowed = c;
  windowed.sliding_window = 3;  // 9 pairs
  EXPECT_EQ(train_flops_per_token(windowed, 4), 6.0 * 44 + 3.0 * (9 * 2 * 2 * 2) / 4);
}

TEST(RecomputeFlops, AreTheForwardPassesOfAllSegmentsButTheLast) {
  const ModelConfig c = resolved(
      {.vocab_size = 5, .hidden_size = 2, .intermediate_size = 3, .num_hidden_layers = 3, .num_attention_heads = 1});
  const double attention = 2.0 * 16 + (10 * 2 * 2 * 2) / 4.0, mlp = 2.0 * 18;
  EXPECT_EQ(branch_flops_per_token(c, 4, 4), attention);
  EXPECT_EQ(branch_flops_per_token(c, 5, 4), mlp);
  EXPECT_EQ(recompute_flops_per_token(c, 4, 0), 0);
  // No outer norm reads the output of Keel's first sublayer.
  EXPECT_EQ(recompute_flops_per_token(c, 4, 1), 3 * attention + 2 * mlp - 2.0 * 2 * 2);
  EXPECT_EQ(recompute_flops_per_token(c, 4, 2), 2 * (attention + mlp));
  EXPECT_EQ(recompute_flops_per_token(c, 4, 4), attention + mlp) << "the last segment is a whole one";
  EXPECT_EQ(recompute_flops_per_token(c, 4, 6), 0);
  EXPECT_EQ(recompute_flops_per_token(c, 4, 8), 0);
}

TEST(RecomputeFlops, LeaveOutOutputsThatNoOneReads) {
  const ModelConfig keel = resolved(
      {.vocab_size = 5, .hidden_size = 2, .intermediate_size = 3, .num_hidden_layers = 3, .num_attention_heads = 1});
  ModelConfig pre = keel;
  pre.residual_scheme = "pre";
  const double o = 2.0 * 2 * 2, down = 2.0 * 2 * 3;
  const auto saved = [&](int64_t segment) {
    return recompute_flops_per_token(keel, 4, segment) - recompute_flops_per_token(pre, 4, segment);
  };
  // Keel's first sublayer alone has no outer norm.
  EXPECT_EQ(saved(1), 2 * o + 2 * down);
  EXPECT_EQ(saved(2), 2 * down);
  EXPECT_EQ(saved(4), down);
}

}  // namespace
}  // namespace keel
