// Pieces of whole sequences that pass through all sublayers one after another, against pieces that cut sequences.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "keel/model/decoder_test_support.h"
#include "keel/model/residual_wiring.h"
#include "support/product_bits.h"

namespace keel {
namespace {

using decoder_testing::Case;

constexpr int64_t kLength = 128, kSequences = 16, kTokens = kLength * kSequences;

Case many_sequences(const ModelConfig& config, int64_t sequence_length, int64_t segment = 0,
                    ElementType activations = ElementType::fp32) {
  std::vector<int32_t> cu_seqlens;
  for (int64_t s = 0; s <= kSequences; ++s) cu_seqlens.push_back(static_cast<int32_t>(s * kLength));
  cu_seqlens.insert(cu_seqlens.begin() + 3, 2 * kLength + 50);  // a document's end within a sequence
  Case c(config, cu_seqlens, 21, true);
  c.arena_plan = {};
  c.plan = plan_decoder(
      c.config, all_sublayers(c.config),
      {.max_tokens = kTokens, .max_positions = sequence_length, .segment = segment, .activations = activations},
      c.arena_plan);
  return c;
}

struct Result {
  double loss_sum = 0;
  std::vector<float> gradients;  ///< what lies between parameters left out
  bool operator==(const Result&) const = default;
};

Result run(Case& c, Context& ctx) {
  const Arena arena(c.arena_plan);
  Decoder decoder(ctx, c.config, c.plan, arena);
  std::vector<StepScalars> scalars(1);
  EXPECT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), false, {scalars.data(), {1}}));
  EXPECT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), true, {scalars.data(), {1}}));
  Result result{scalars[0].loss_sum, std::vector<float>(c.layout.size)};
  for (const Parameter& p : c.layout.parameters) {
    std::copy_n(c.gradients.begin() + p.offset, p.size, result.gradients.begin() + p.offset);
  }
  return result;
}

/// Gradients of vectors are our own sums over chunks, the same in blocks of any kind; products sum in another order.
void expect_equal_but_for_rounding(const Case& c, const Result& a, const Result& b) {
  EXPECT_EQ(a.loss_sum, b.loss_sum);
  for (const Parameter& p : c.layout.parameters) {
    double largest = 0, worst = 0;
    for (int64_t i = p.offset; i < p.offset + p.size; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(a.gradients[i])));
      worst = std::max(worst, std::abs(static_cast<double>(a.gradients[i]) - b.gradients[i]));
    }
    const double tolerance = p.is_matrix() ? 4 * std::sqrt(2.0 * kTokens) * 0x1p-24 * largest : 0;
    EXPECT_TRUE(worst <= tolerance) << p.name << " " << worst << " of " << largest;
  }
}

ModelConfig narrow(const std::string& scheme) {
  return {.vocab_size = 61,
          .hidden_size = 16,
          .intermediate_size = 40,
          .num_hidden_layers = 4,
          .num_attention_heads = 2,
          .num_key_value_heads = 1,
          .residual_scheme = scheme};
}

void expect_same_as_with_cut_sequences(const ModelConfig& config, int64_t segment = 0,
                                       ElementType activations = ElementType::fp32) {
  Case cut = many_sequences(config, kTokens, segment, activations),
       whole = many_sequences(config, kLength, segment, activations);
  Result single_pieces;
  for (const int threads : {4, 2, 1}) {
    Context ctx(threads);
    const RowBlocks blocks = decoder_row_blocks(whole.config, kTokens, kLength, threads);
    ASSERT_EQ(blocks.count, threads == 1 ? 1 : threads + 1);
    ASSERT_EQ(blocks.pieces(), 4 / threads);
    for (int64_t block = 0; block < blocks.count; ++block) ASSERT_EQ(blocks.at(block).begin % kLength, 0);
    const Result result = run(cut, ctx);
    if (threads == 4) single_pieces = result;
    expect_equal_but_for_rounding(whole, single_pieces, result);
    expect_equal_but_for_rounding(whole, single_pieces, run(whole, ctx));
  }
}

TEST(DecoderBlocks, WholeSequencesGiveWhatCutOnesGive) {
  KEEL_SKIP_UNLESS_PRODUCTS_ARE_ALIKE();
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    ModelConfig config = narrow(std::string(scheme.name));
    config.learnable_alpha = scheme.accepts_alpha;
    expect_same_as_with_cut_sequences(config);
  }
}

TEST(DecoderBlocks, RoundedAndInSegmentsToo) {
  KEEL_SKIP_UNLESS_PRODUCTS_ARE_ALIKE();
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    ModelConfig config = narrow(std::string(scheme.name));
    config.learnable_alpha = scheme.accepts_alpha;
    expect_same_as_with_cut_sequences(config, 0, ElementType::bf16);
    expect_same_as_with_cut_sequences(config, 3, ElementType::bf16);
  }
}

TEST(DecoderBlocks, BiasesAndNormsOfHeadsToo) {
  KEEL_SKIP_UNLESS_PRODUCTS_ARE_ALIKE();
  ModelConfig config = narrow("pre");
  config.qk_norm = true;
  expect_same_as_with_cut_sequences(config);
  config.qk_norm = false;
  config.attention_bias = config.mlp_bias = true;
  expect_same_as_with_cut_sequences(config);
}

void expect_same_bits_in_each_run(const std::string& scheme, ElementType activations) {
  Case c = many_sequences(narrow(scheme), kLength, 0, activations),
       recomputed = many_sequences(narrow(scheme), kLength, 3, activations);
  for (const int threads : {1, 2, 4}) {
    Context ctx(threads);
    const Result first = run(c, ctx);
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(run(c, ctx) == first) << "threads " << threads << ", run " << i;
    EXPECT_TRUE(run(recomputed, ctx) == first) << "in segments";
  }
}

TEST(DecoderBlocks, NoThreadChangesABit) {
  for (const ElementType activations : {ElementType::fp32, ElementType::bf16}) {
    for (const char* scheme : {"keel", "pre", "sandwich", "rezero"}) {
      SCOPED_TRACE(scheme);
      expect_same_bits_in_each_run(scheme, activations);
    }
  }
}

TEST(DecoderBlocks, InterruptionEndsThePass) {
  Case c = many_sequences(narrow("keel"), kLength);
  Context ctx(2);
  const Arena arena(c.arena_plan);
  int asked = 0, patience = 100000;
  Decoder decoder(ctx, c.config, c.plan, arena, [&] { return ++asked > patience; });
  std::vector<StepScalars> scalars(1);
  const auto run = [&] { return decoder.forward_backward(c.parameters(), c.flat(), false, {scalars.data(), {1}}); };
  EXPECT_TRUE(run());
  EXPECT_GE(asked, 2);
  for (patience = 0; patience < 3; ++patience) {
    asked = 0;
    EXPECT_FALSE(run() && asked > patience) << patience;
  }
  patience = 100000;
  EXPECT_TRUE(run());
}

// So that a stop in a micro-batch of many rows need not wait for all of them.
TEST(DecoderBlocks, PassesAskBetweenStepsOnPiecesWhetherToGoOn) {
  Case c = many_sequences(narrow("keel"), kLength);
  Context ctx(1);
  const Arena arena(c.arena_plan);
  const RowBlocks blocks = decoder_row_blocks(c.config, kTokens, kLength, 1);
  int64_t asked = 0, pieces = 0;
  for (int64_t block = 0; block < blocks.count; ++block) blocks.for_pieces(block, [&](Rows) { ++pieces; });
  EXPECT_GT(pieces, 1);
  Decoder decoder(ctx, c.config, c.plan, arena, [&] { return ++asked < 0; });
  std::vector<StepScalars> scalars(1);
  ASSERT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), false, {scalars.data(), {1}}));
  constexpr int64_t kSteps = 3;  // of a sublayer, each way, at least
  EXPECT_GE(asked, 2 * kSteps * c.config.sublayers() * pieces);
}

}  // namespace
}  // namespace keel
