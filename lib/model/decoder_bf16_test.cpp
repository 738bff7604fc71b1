// A decoder that computes in bf16, on a device: the loss and every gradient lie as far from the reference in double as
// rounding may move them (support/perturbation.h).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "keel/kernels/cast/cast.h"
#include "keel/model/batch_copy.h"
#include "keel/model/decoder.h"
#include "keel/model/decoder_backward_ref.h"
#include "keel/model/decoder_test_support.h"
#include "keel/model/kv_cache.h"
#include "support/moved_weights.h"
#include "support/perturbation.h"
#include "support/test_device.h"

namespace keel {
namespace {

using decoder_testing::Case;
using decoder_testing::small;

/// Of every parameter that learns, and the token losses.
using Gradients = std::map<std::string, std::vector<double>>;

Gradients named(const Case& c, const std::vector<double>& flat, const std::vector<double>& nll) {
  Gradients gradients{{"token losses", nll}};
  for (const Parameter& p : c.layout.parameters) {
    if (p.frozen) continue;
    gradients[p.name].assign(flat.begin() + p.offset, flat.begin() + p.offset + p.size);
  }
  return gradients;
}

Gradients reference_gradients(const Case& c, const std::function<void(std::vector<double>&)>& round) {
  const std::vector<double> weights = testing::moved_weights(c.layout, c.weights, round);
  const auto found = reference::DecoderBackward<double>(c.config, c.layout, weights, c.batch, round)();
  return named(c, found.parameters, found.nll);
}

/// A case's parameters with matrices in bf16.
struct RoundedParameters {
  std::vector<Bf16> values;
  std::vector<WeightMatrix> matrices;
  ParameterBuffers buffers;

  RoundedParameters(Context& ctx, Case& c) : values(c.layout.size), buffers(c.parameters()) {
    const std::array<int64_t, 2> all{1, c.layout.size};
    narrow(ctx, View<const float, 2>(c.weights.data(), all), View<Bf16, 2>(values.data(), all));
    matrices = bf16_matrices(c.layout, values.data());
    buffers.compute = matrices;
  }
};

Gradients device_gradients(Case& c) {
  Context ctx = testing::test_context(1);
  const Arena arena(ctx, c.arena_plan);
  Decoder decoder(ctx, c.config, c.plan, arena);
  const RoundedParameters rounded(ctx, c);
  const ParameterBuffers& p = rounded.buffers;
  std::vector<StepScalars> scalars(1);
  std::vector<float> nll(c.batch.size()), first;
  for (int pass = 0; pass < 2; ++pass) {  // the second one finds what the first has left in every buffer
    EXPECT_TRUE(decoder.forward_backward(p, c.flat(), false, {scalars.data(), {1}}, {nll.data(), {c.batch.size()}}));
    ctx.synchronize();
    if (pass == 0) first = c.gradients;
  }
  for (const Parameter& parameter : c.layout.parameters) {
    for (int64_t i = parameter.offset; i < parameter.offset + parameter.size; ++i) {
      EXPECT_EQ(c.gradients[i], first[i]) << parameter.name << ": other bits the second time";
      if (c.gradients[i] != first[i]) break;
    }
  }
  return named(c, {c.gradients.begin(), c.gradients.end()}, {nll.begin(), nll.end()});
}

/// Token losses of the only sequence of a case, which runs in pieces through a key-value cache: by score() and by logits()
/// in turn.
std::vector<double> losses_through_a_cache(Case& c, const std::vector<int64_t>& pieces) {
  constexpr int64_t kPages = 8, kPageSize = 4;
  const int64_t N = c.batch.size(), V = c.config.vocab_size;
  ArenaPlan arena_plan;
  const DecoderPlan plan = plan_decoder(c.config, all_sublayers(c.config),
                                        {.max_tokens = N,
                                         .max_positions = N,
                                         .training = false,
                                         .compute = ElementType::bf16,
                                         .cache_pages = kPages,
                                         .page_size = kPageSize,
                                         .logit_rows = N},
                                        arena_plan);
  Context ctx = testing::test_context(1);
  const Arena arena(ctx, arena_plan);
  Decoder decoder(ctx, c.config, plan, arena);
  const RoundedParameters rounded(ctx, c);
  KvPages pages(kPages, kPageSize);
  const int64_t sequence = pages.create();
  BatchCopy copy(ctx);
  CachedBatch batch;
  std::vector<double> losses;
  for (const int64_t piece : pieces) {
    const int64_t begin = std::ssize(losses);
    batch.clear();
    EXPECT_TRUE(batch.add(pages, sequence, std::span(c.batch.tokens).subspan(begin, piece)));
    EXPECT_TRUE(decoder.forward(rounded.buffers, copy.of(batch.host())));
    std::vector<int32_t> rows(piece), argmax(piece);
    std::iota(rows.begin(), rows.end(), 0);
    const std::vector<float> weights(piece, 1);
    std::vector<float> nll(piece), logits(piece * V);
    decoder.score(rounded.buffers, Case::view(rows), Case::view(c.batch.targets).slice(begin, begin + piece),
                  Case::view(weights), {nll.data(), {piece}}, {argmax.data(), {piece}});
    decoder.logits(rounded.buffers, Case::view(rows), {logits.data(), {piece, V}});
    ctx.synchronize();
    for (int64_t n = 0; n < piece; ++n) {
      const float* of_row = logits.data() + n * V;
      double sum = 0;
      for (int64_t v = 0; v < V; ++v) sum += std::exp(double{of_row[v]});
      const double from_logits = std::log(sum) - of_row[c.batch.targets[begin + n]];
      losses.push_back(n % 2 == 0 ? nll[n] : from_logits);
    }
  }
  return losses;
}

class DeviceDecoderBf16 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::test_device()) GTEST_SKIP() << "of a GPU";
  }

  static Case made(const ModelConfig& config, const std::vector<int32_t>& cu_seqlens, uint64_t seed,
                   int64_t segment = 0) {
    return Case(config, cu_seqlens, seed, true, true, segment, ElementType::fp32, ElementType::bf16);
  }

  static void expect_rounding_alone(const ModelConfig& config, const std::vector<int32_t>& cu_seqlens, uint64_t seed) {
    Case c = made(config, cu_seqlens, seed);
    expect_rounding_alone(c, device_gradients(c));
  }
  static void expect_rounding_alone(const Case& c, const Gradients& found) {
    const Gradients expected = reference_gradients(c, {});
    std::map<std::string, testing::Deviation> deviations;
    for (int run = 0; run < testing::kPerturbedRuns; ++run) {
      for (const auto& [name, values] : reference_gradients(c, testing::Perturbation(static_cast<uint64_t>(run)))) {
        deviations[name].add(testing::distance(values, expected.at(name)));
      }
    }
    for (const auto& [name, values] : found) {
      const double off = testing::distance(values, expected.at(name)), tolerance = deviations[name].tolerance();
      EXPECT_TRUE(off <= tolerance) << name << ": off by " << off << ", rounding may do " << tolerance;
    }
  }
};

TEST_F(DeviceDecoderBf16, EveryScheme) {
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    ModelConfig config = small(std::string(scheme.name));
    config.num_hidden_layers = 3;
    expect_rounding_alone(config, {0, 20, 33}, 1);
  }
}

TEST_F(DeviceDecoderBf16, SchemesWithOtherNormsAndLearnedScales) {
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    for (const NormKind norm : {NormKind::rms, NormKind::ln}) {
      SCOPED_TRACE(to_string(norm));
      ModelConfig config = small(std::string(scheme.name));
      config.norm_type = norm;
      config.final_norm = !scheme.final_norm;
      config.learnable_alpha = scheme.accepts_alpha;
      expect_rounding_alone(config, {0, 20, 33}, 2);
    }
  }
}

TEST_F(DeviceDecoderBf16, Options) {
  ModelConfig all = small("sandwich");
  all.tie_word_embeddings = all.attention_bias = all.mlp_bias = all.qk_norm = true;
  all.sliding_window = 7;
  expect_rounding_alone(all, {0, 20, 33}, 3);
  ModelConfig biases = small("keel");
  biases.qkv_bias = true;
  expect_rounding_alone(biases, {0, 1, 4, 33}, 4);
}

/// Heads for tensor cores, and rows that kernels take four columns at a time.
TEST_F(DeviceDecoderBf16, Wide) {
  for (const char* scheme : {"keel", "pre", "post", "olmo2"}) {
    SCOPED_TRACE(scheme);
    ModelConfig config{.vocab_size = 61,
                       .hidden_size = 64,
                       .intermediate_size = 96,
                       .num_hidden_layers = 2,
                       .num_attention_heads = 2,
                       .num_key_value_heads = 1,
                       .head_dim = 32,
                       .residual_scheme = scheme};
    expect_rounding_alone(config, {0, 70, 128}, 5);
  }
}

TEST_F(DeviceDecoderBf16, ThroughACache) {
  for (const char* scheme : {"keel", "pre", "sandwich"}) {
    SCOPED_TRACE(scheme);
    ModelConfig config = small(scheme);
    config.qk_norm = true;
    config.sliding_window = 9;
    Case c(config, {0, 30}, 7);
    for (const std::vector<int64_t>& pieces : {std::vector<int64_t>(30, 1), {30}, {5, 1, 1, 9, 13, 1}}) {
      expect_rounding_alone(c, {{"token losses", losses_through_a_cache(c, pieces)}});
    }
  }
}

TEST_F(DeviceDecoderBf16, WhatIsComputedAgainHasTheSameBits) {
  for (const char* scheme : {"keel", "pre", "post", "sandwich", "lns", "admin"}) {
    SCOPED_TRACE(scheme);
    ModelConfig config = small(scheme);
    config.num_hidden_layers = 3;
    Case kept = made(config, {0, 20, 33}, 6);
    const Gradients expected = device_gradients(kept);
    for (const int64_t segment : {1, 2, 4}) {
      Case again = made(config, {0, 20, 33}, 6, segment);
      EXPECT_EQ(device_gradients(again), expected) << segment;
    }
  }
}

}  // namespace
}  // namespace keel
