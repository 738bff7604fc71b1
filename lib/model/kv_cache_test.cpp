#include "keel/model/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/base/error.h"
#include "keel/model/batch_copy.h"
#include "keel/model/decoder.h"
#include "support/errors.h"
#include "support/numeric.h"
#include "support/test_device.h"

namespace keel {
namespace {

using testing::Random;

TEST(KvPages, PagesAreGivenOutSharedAndFreed) {
  KvPages pages(4, 8);
  const int64_t first = pages.create();
  EXPECT_TRUE(pages.append(first, 19));
  EXPECT_EQ(pages.free_pages(), 1);
  EXPECT_EQ(pages.length(first), 19);
  EXPECT_EQ(pages.row(first, 18), pages.pages(first)[2] * 8 + 2);

  const int64_t second = pages.fork(first, 18);
  EXPECT_EQ(pages.length(second), 16) << "whole pages";
  EXPECT_EQ(pages.row(second, 15), pages.row(first, 15));
  EXPECT_EQ(pages.pages_wanted(second, 9), 2);
  EXPECT_FALSE(pages.append(second, 9)) << "one page is left";
  EXPECT_EQ(pages.length(second), 16);
  EXPECT_TRUE(pages.append(second, 8));
  EXPECT_NE(pages.row(second, 16), pages.row(first, 16)) << "its own page";

  pages.release(first);
  EXPECT_EQ(pages.free_pages(), 1) << "two pages are still shared";
  pages.release(second);
  EXPECT_EQ(pages.free_pages(), 4);
}

TEST(KvPages, RowsBeyond32BitsAreRefused) {
  EXPECT_EQ(cache_rows(int64_t{1} << 27, 16), int64_t{1} << 31);
  for (const auto& [pages, size] : {std::pair((int64_t{1} << 27) + 1, int64_t{16}), {3, int64_t{1} << 62}}) {
    testing::expect_error(ErrorKind::memory, "at most 2147483648 tokens", [&] { KvPages(pages, size); });
  }
  for (const auto& [pages, size] : {std::pair(1, 0), {-1, 16}}) {
    testing::expect_error(ErrorKind::internal, "a cache of", [&] { KvPages(pages, size); });
  }
}

TEST(CachedBatch, ASequenceIsInABatchOnce) {
  KvPages pages(4, 8);
  const int64_t sequence = pages.create(), other = pages.create();
  const std::vector<int32_t> tokens{1, 2};
  CachedBatch batch;
  ASSERT_TRUE(batch.add(pages, sequence, tokens));
  ASSERT_TRUE(batch.add(pages, other, tokens));
  testing::expect_error(ErrorKind::internal, "twice", [&] { batch.add(pages, sequence, tokens); });
  testing::expect_error(ErrorKind::internal, "no tokens", [&] { batch.add(pages, pages.create(), {}); });
  EXPECT_EQ(pages.length(sequence), 2) << "nothing changed";
  EXPECT_EQ(batch.tokens(), 4);
  batch.clear();
  EXPECT_TRUE(batch.add(pages, sequence, tokens));
}

ModelConfig config_with_everything() {
  ModelConfig c{.vocab_size = 19,
                .hidden_size = 12,
                .intermediate_size = 20,
                .num_hidden_layers = 3,
                .num_attention_heads = 4,
                .num_key_value_heads = 2,
                .head_dim = 6,
                .residual_scheme = "keel"};
  c.attention_bias = c.qk_norm = true;
  c.sliding_window = 9;
  c.sliding_layers = {false, true, false};
  return resolved(c);
}

/// What the families of models differ in.
std::vector<ModelConfig> configs() {
  ModelConfig llama = config_with_everything();
  llama.attention_bias = llama.qk_norm = false;
  llama.sliding_window = 0;
  llama.sliding_layers.clear();
  llama.num_key_value_heads = 4;
  llama.residual_scheme = "pre";
  llama.tie_word_embeddings = true;
  llama.rope_scaling = {.kind = RopeScaling::Kind::llama3,
                        .factor = 4,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .original_max_position_embeddings = 8};
  ModelConfig mistral = llama;  // one key-value head, a window in every layer that ends inside a page
  mistral.num_key_value_heads = 1;
  mistral.rope_scaling = {};
  mistral.sliding_window = 5;
  ModelConfig qwen2 = llama;
  qwen2.num_key_value_heads = 2;
  qwen2.qkv_bias = qwen2.mlp_bias = true;
  ModelConfig post = config_with_everything();
  post.residual_scheme = "post";
  post.sliding_window = 1;
  return {config_with_everything(), resolved(llama), resolved(mistral), resolved(qwen2), resolved(post)};
}

/// A model with random weights whose decoder has room for a cache.
struct Model {
  explicit Model(const ModelConfig& wanted) : config(wanted), layout(parameter_layout(config)), weights(layout.size) {
    Random random(5);
    for (const Parameter& p : layout.parameters) {
      for (int64_t i = 0; i < p.size; ++i) {
        weights[p.offset + i] = static_cast<float>(p.is_matrix() ? 0.3 * random.normal() : 1 + 0.2 * random.normal());
      }
    }
    ArenaPlan arena_plan;
    const DecoderOptions options{.max_tokens = 64,
                                 .max_positions = 64,
                                 .training = false,
                                 .cache_pages = kPages,
                                 .page_size = kPageSize,
                                 .logit_rows = 64};
    const DecoderPlan plan = plan_decoder(config, all_sublayers(config), options, arena_plan);
    arena.emplace(ctx, arena_plan);
    decoder.emplace(ctx, config, plan, *arena);
  }

  /// Logits of every row of the batch, [N][V].
  std::vector<float> run(const HostBatch& batch) {
    const ParameterBuffers parameters{.layout = &layout, .weights = {weights.data(), {layout.size}}, .gradients = {}};
    const int64_t N = batch.tokens.extent(0);
    std::vector<int32_t> rows(N);
    for (int64_t n = 0; n < N; ++n) rows[n] = static_cast<int32_t>(n);
    std::vector<float> logits(N * config.vocab_size);
    EXPECT_TRUE(decoder->forward(parameters, copy.of(batch)));
    decoder->logits(parameters, {rows.data(), {N}}, {logits.data(), {N, config.vocab_size}});
    return logits;
  }

  static constexpr int64_t kPages = 12, kPageSize = 4;
  ModelConfig config;
  ParameterLayout layout;
  std::vector<float> weights;
  Context ctx = testing::test_context(2);
  BatchCopy copy{ctx};
  std::optional<Arena> arena;
  std::optional<Decoder> decoder;
};

std::vector<int32_t> draw_tokens(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random.integer(0, 18)));
  return tokens;
}

/// Without a cache, alone.
std::vector<float> whole(Model& model, const std::vector<int32_t>& tokens) {
  std::vector<int32_t> positions, bounds{0, static_cast<int32_t>(tokens.size())};
  for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  const int64_t N = static_cast<int64_t>(tokens.size());
  HostBatch batch;
  batch.tokens = {tokens.data(), {N}};
  batch.positions = {positions.data(), {N}};
  batch.cu_seqlens = {bounds.data(), {2}};
  return model.run(batch);
}

/// The logits of a sequence's rows from `first` on agree to some roundings of numbers of this size.
void expect_same(const std::vector<float>& found, size_t found_from, const std::vector<float>& expected, size_t from,
                 size_t count) {
  float largest = 0;
  for (float v : expected) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(testing::is_close(found[found_from + i], expected[from + i], 1e-5 * largest)) << i;
  }
}

TEST(KvPages, APlanWithMoreRowsIsRefused) {
  ArenaPlan arena;
  const ModelConfig config = config_with_everything();
  const DecoderOptions options{
      .max_tokens = 1, .max_positions = 1, .training = false, .cache_pages = int64_t{1} << 28, .page_size = 16};
  testing::expect_error(ErrorKind::memory, "at most 2147483648 tokens",
                        [&] { (void)plan_decoder(config, all_sublayers(config), options, arena); });
}

class KvCache : public ::testing::TestWithParam<ModelConfig> {};
INSTANTIATE_TEST_SUITE_P(Families, KvCache, ::testing::ValuesIn(configs()));

TEST_P(KvCache, TokenByTokenAndInPiecesAsTheWholeSequence) {
  Model model(GetParam());
  const size_t V = model.config.vocab_size;
  const auto tokens = draw_tokens(21, 1);
  const auto expected = whole(model, tokens);
  for (const std::vector<size_t>& pieces : {std::vector<size_t>(21, 1), {21}, {5, 1, 1, 9, 4, 1}}) {
    KvPages pages(Model::kPages, Model::kPageSize);
    const int64_t sequence = pages.create();
    CachedBatch batch;
    size_t done = 0;
    for (size_t piece : pieces) {
      batch.clear();
      ASSERT_TRUE(batch.add(pages, sequence, {tokens.data() + done, piece}));
      expect_same(model.run(batch.host()), 0, expected, done * V, piece * V);
      done += piece;
    }
  }
}

TEST_P(KvCache, SequencesOfOneBatchDoNotSeeEachOther) {
  Model model(GetParam());
  const size_t V = model.config.vocab_size;
  const auto a = draw_tokens(13, 2), b = draw_tokens(6, 3);
  const auto whole_a = whole(model, a), whole_b = whole(model, b);
  KvPages pages(Model::kPages, Model::kPageSize);
  const int64_t first = pages.create(), second = pages.create();
  CachedBatch batch;
  ASSERT_TRUE(batch.add(pages, first, {a.data(), 10}));
  ASSERT_TRUE(batch.add(pages, second, {b.data(), 2}));
  const auto prefill = model.run(batch.host());
  expect_same(prefill, 0, whole_a, 0, 10 * V);
  expect_same(prefill, 10 * V, whole_b, 0, 2 * V);
  batch.clear();
  ASSERT_TRUE(batch.add(pages, second, {b.data() + 2, 4}));
  ASSERT_TRUE(batch.add(pages, first, {a.data() + 10, 3}));
  const auto next = model.run(batch.host());
  expect_same(next, 0, whole_b, 2 * V, 4 * V);
  expect_same(next, 4 * V, whole_a, 10 * V, 3 * V);
}

TEST_P(KvCache, ForksShareTheirPrefix) {
  Model model(GetParam());
  const size_t V = model.config.vocab_size;
  const auto prefix = draw_tokens(11, 4);
  KvPages pages(Model::kPages, Model::kPageSize);
  const int64_t trunk = pages.create();
  CachedBatch batch;
  ASSERT_TRUE(batch.add(pages, trunk, prefix));
  model.run(batch.host());
  batch.clear();
  std::vector<std::vector<float>> expected;
  std::vector<size_t> lengths;
  for (uint64_t branch = 0; branch < 3; ++branch) {
    std::vector<int32_t> all = prefix;
    for (int32_t token : draw_tokens(3 + static_cast<int64_t>(branch), 10 + branch)) all.push_back(token);
    const int64_t fork = pages.fork(trunk, 11);
    ASSERT_EQ(pages.length(fork), 8);
    ASSERT_TRUE(batch.add(pages, fork, {all.data() + 8, all.size() - 8}));
    expected.push_back(whole(model, all));
    lengths.push_back(all.size());
  }
  const auto logits = model.run(batch.host());
  for (size_t i = 0; i < expected.size(); ++i) {
    const size_t row = static_cast<size_t>(batch.first_row(static_cast<int64_t>(i)));
    expect_same(logits, row * V, expected[i], 8 * V, (lengths[i] - 8) * V);
  }
}

}  // namespace
}  // namespace keel
