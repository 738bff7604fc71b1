#include "keel/model/decoder.h"

#include <gtest/gtest.h>

#include <complex>
#include <map>

#include "keel/model/decoder_backward_ref.h"
#include "keel/model/decoder_test_support.h"
#include "support/numeric.h"
#include "support/product_bits.h"
#include "support/test_device.h"

namespace keel {
namespace {

using decoder_testing::Case;
using decoder_testing::small;
using Complex = std::complex<double>;

/// |g - g_ref|_2 <= 4 k (sqrt(n) u |g_ref|_2 + |e|_2) for each tensor: k = 20 operations one after the other, each rounding
/// sums of some n = 54 products (tokens times width), u = 6e-8, and each moving the gradient as much as rounding the
/// weights does, e: small models with sharp norms may be ill-conditioned.
constexpr double kFactor = 4 * 20, kTensorTolerance = kFactor * 7.35 * testing::kUnitFp32;

/// Gradients of every parameter but the model's constants.
std::vector<double> complex_step_gradient(const Case& c) {
  std::vector<Complex> at(c.weights.begin(), c.weights.end());
  const reference::Decoder<Complex> model(c.config, c.layout, at, c.batch);
  std::vector<double> gradient(at.size());
  for (const Parameter& p : c.layout.parameters) {
    if (p.frozen) continue;
    for (int64_t i = p.offset; i < p.offset + p.size; ++i) {
      at[i].imag(testing::kComplexStep);
      gradient[i] = std::imag(model.loss()) / testing::kComplexStep;
      at[i].imag(0);
    }
  }
  return gradient;
}

std::vector<double> reference_gradient(const Case& c) {
  const std::vector<double> weights(c.weights.begin(), c.weights.end());
  return reference::DecoderBackward<double>(c.config, c.layout, weights, c.batch)().parameters;
}

/// What rounding the weights does to the gradient.
std::vector<double> rounding_effect(const Case& c) {
  testing::Random random(17);
  std::vector<double> weights(c.weights.begin(), c.weights.end()), moved = weights;
  for (double& w : moved) w *= 1 + testing::kUnitFp32 * random.uniform(-1, 1);
  const auto gradient = [&](const std::vector<double>& at) {
    return reference::DecoderBackward<double>(c.config, c.layout, at, c.batch)().parameters;
  };
  std::vector<double> effect = gradient(moved);
  const std::vector<double> unmoved = gradient(weights);
  for (size_t i = 0; i < effect.size(); ++i) effect[i] -= unmoved[i];
  return effect;
}

void expect_gradients(Case& c, const std::vector<double>& expected) {
  Context ctx = testing::test_context(2);
  const Arena arena(ctx, c.arena_plan);
  Decoder decoder(ctx, c.config, c.plan, arena);
  std::vector<StepScalars> scalars(1);
  for (int pass = 0; pass < 2; ++pass) {  // the second one finds what the first has left in every buffer
    scalars[0] = {};
    ASSERT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), false, {scalars.data(), {1}}));
  }

  const std::vector<double> weights(c.weights.begin(), c.weights.end());
  const double expected_loss = reference::Decoder<double>(c.config, c.layout, weights, c.batch).loss();
  EXPECT_TRUE(testing::is_close(scalars[0].loss_sum, expected_loss, 1e-6 * expected_loss))
      << scalars[0].loss_sum << " " << expected_loss;
  // Single numbers are sums that may cancel: those of one kind are compared together.
  std::map<std::string, std::pair<double, double>> single;
  const std::vector<double> effect = rounding_effect(c);
  for (const Parameter& p : c.layout.parameters) {
    double difference = 0, norm = 0, moved = 0;
    for (int64_t i = p.offset; i < p.offset + p.size; ++i) {
      ASSERT_TRUE(!p.frozen || c.gradients[i] == 0) << p.name;
      difference += (c.gradients[i] - expected[i]) * (c.gradients[i] - expected[i]);
      norm += expected[i] * expected[i];
      moved += effect[i] * effect[i];
    }
    if (p.frozen) continue;
    EXPECT_GT(norm, 0) << p.name;
    if (p.size == 1) {
      auto& [sum_difference, sum_norm] = single[p.name.substr(p.name.rfind('.'))];
      sum_difference += difference;
      sum_norm += norm;
      continue;
    }
    EXPECT_TRUE(std::sqrt(difference) <= kTensorTolerance * std::sqrt(norm) + kFactor * std::sqrt(moved))
        << p.name << ": " << std::sqrt(difference / norm) << " of " << std::sqrt(norm) << ", rounding moves it by "
        << std::sqrt(moved / norm);
  }
  for (const auto& [name, sums] : single) {
    EXPECT_TRUE(std::sqrt(sums.first) <= kTensorTolerance * std::sqrt(sums.second)) << name;
  }
}

void expect_matches_reference(Case& c) {
  expect_gradients(c, complex_step_gradient(c));
}

TEST(Decoder, EveryGradientOfEverySchemeAgainstTheComplexStep) {
  constexpr uint64_t kSeed = 1;  // the same for all, so that a new scheme leaves the others' cases as they are
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    Case c(small(std::string(scheme.name)), {0, 5, 9}, kSeed);
    expect_matches_reference(c);
  }
}

/// More sublayers, wider, and longer documents than complex steps reach.
TEST(Decoder, SixSublayersOfEverySchemeAgainstTheReference) {
  constexpr uint64_t kSeed = 100;
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    const ModelConfig config{.vocab_size = 61,
                             .hidden_size = 32,
                             .intermediate_size = 48,
                             .num_hidden_layers = 3,
                             .num_attention_heads = 4,
                             .num_key_value_heads = 2,
                             .residual_scheme = std::string(scheme.name)};
    Case c(config, {0, 23, 24, 57}, kSeed, true);
    expect_gradients(c, reference_gradient(c));
  }
}

TEST(Decoder, OptionsAgainstTheComplexStep) {
  std::map<std::string, ModelConfig> configs{{"tied", small("keel")},
                                             {"alpha", small("keel")},
                                             {"final norm", small("post")},
                                             {"no final norm", small("pre")}};
  configs["tied"].tie_word_embeddings = true;
  configs["alpha"].residual_alpha = 2.5;
  configs["final norm"].final_norm = true;
  configs["no final norm"].final_norm = false;
  for (const char* name :
       {"attention bias", "qkv bias", "mlp bias", "qk norm", "window", "window in block 1", "rope"}) {
    configs[name] = small("pre");
  }
  configs["attention bias"].attention_bias = true;
  configs["qkv bias"].qkv_bias = true;
  configs["mlp bias"].mlp_bias = true;
  configs["qk norm"].qk_norm = true;
  configs["window"].sliding_window = 3;
  configs["window in block 1"].sliding_window = 2;
  configs["window in block 1"].sliding_layers = {false, true};
  configs["rope"].rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = 3};
  for (const auto& [name, config] : configs) {
    SCOPED_TRACE(name);
    Case c(config, {0, 7}, 20);
    expect_matches_reference(c);
  }
}

/// Norms of another kind, a learned skip scale, constants: what schemes can be combined with.
TEST(Decoder, SchemeOptionsAgainstTheComplexStep) {
  constexpr uint64_t kSeed = 200;
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    const ModelConfig plain = small(std::string(scheme.name));
    for (const NormKind norm : {NormKind::rms, NormKind::ln}) {
      SCOPED_TRACE(to_string(norm));
      ModelConfig config = plain;
      config.norm_type = norm;
      config.final_norm = !scheme.final_norm;
      Case c(config, {0, 5}, kSeed);
      expect_matches_reference(c);
    }
    if (!scheme.accepts_alpha) continue;
    ModelConfig config = plain;
    config.learnable_alpha = true;
    config.residual_alpha = 1.5;
    Case c(config, {0, 5}, kSeed);
    expect_matches_reference(c);
  }
  ModelConfig frozen = small("admin");
  frozen.admin_frozen = true;
  Case c(frozen, {0, 5}, kSeed);
  expect_matches_reference(c);
  ModelConfig mixed = small("mix");
  for (const double fraction : {0.0, 0.5, 1.0}) {
    mixed.mix_fraction = fraction;
    Case with_fraction(mixed, {0, 5}, kSeed);
    expect_matches_reference(with_fraction);
  }
}

/// What is computed again has the same bits as what is kept.
void expect_same_bits(const ModelConfig& config, ElementType type) {
  std::vector<float> kept;
  for (const int64_t segment : {0, 1, 2, 4, 6, 10}) {
    Case c(config, {0, 3, 9}, 80, false, true, segment, type);
    Context ctx = testing::test_context(2);
    const Arena arena(ctx, c.arena_plan);
    Decoder decoder(ctx, c.config, c.plan, arena);
    std::vector<StepScalars> scalars(1);
    ASSERT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), false, {scalars.data(), {1}}));
    ASSERT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), true, {scalars.data(), {1}}));
    std::vector<float> gradients;
    for (const Parameter& p : c.layout.parameters) {
      gradients.insert(gradients.end(), c.gradients.begin() + p.offset, c.gradients.begin() + p.offset + p.size);
    }
    if (kept.empty()) kept = gradients;
    EXPECT_EQ(kept, gradients) << "segments of " << segment << " sublayers, type " << static_cast<int>(type);
  }
}

TEST(Decoder, RecomputationGivesTheSameBits) {
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    ModelConfig config = small(std::string(scheme.name));
    config.num_hidden_layers = 3;
    config.learnable_alpha = scheme.accepts_alpha;
    for (const ElementType type : {ElementType::fp32, ElementType::bf16}) expect_same_bits(config, type);
  }
}

TEST(Decoder, RecomputationNeedsLessMemory) {
  ModelConfig config = small("keel");
  config.num_hidden_layers = 16;
  std::map<int64_t, int64_t> bytes;
  for (const int64_t segment : {0, 1, 2, 8}) {
    Case c(config, {0, 300}, 81, false, true, segment);
    bytes[segment] = c.arena_plan.bytes(MemoryKind::activations);
  }
  EXPECT_LT(bytes[1], bytes[0] / 2);
  EXPECT_LT(bytes[2], bytes[1]);
  EXPECT_LT(bytes[8], bytes[0] / 2);
}

double loss_and_gradients(Case& c) {
  Context ctx = testing::test_context(2);
  const Arena arena(ctx, c.arena_plan);
  Decoder decoder(ctx, c.config, c.plan, arena);
  std::vector<StepScalars> scalars(1);
  EXPECT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), false, {scalars.data(), {1}}));
  return scalars[0].loss_sum;
}

/// Of the gradient of a tensor, in the 2-norm. A rounding to bf16 is off by 2^-9.5 in the root mean square; a gradient meets
/// at most 5 rounded matrices in each of 6 sublayers, whose errors are independent: sqrt(30) 2^-9.5 = 0.008. The factor is
/// for norms and softmax, which are steeper than 1, and for sums that cancel.
constexpr double kRoundedTolerance = 4 * 0.008;
/// Queries and keys lie behind P (dP - D), a difference of numbers some three times as large.
double rounded_tolerance(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  return kRoundedTolerance * (has("q_proj") || has("k_proj") || has("q_norm") || has("k_norm") ? 3 : 1);
}

/// Gradients of the two types of storage, tensor by tensor; single numbers of one kind together, as they are sums that may
/// cancel.
void expect_near(const Case& c, const std::vector<float>& exact, const std::vector<float>& rounded) {
  std::map<std::string, std::pair<double, double>> sums;
  double all = 0;
  for (const Parameter& p : c.layout.parameters) {
    auto& [difference, norm] = sums[p.size == 1 ? p.name.substr(p.name.rfind('.')) : p.name];
    for (int64_t i = p.offset; i < p.offset + p.size; ++i) {
      const double d = static_cast<double>(rounded[i]) - exact[i];
      if (p.frozen) continue;
      difference += d * d;
      norm += static_cast<double>(exact[i]) * exact[i];
    }
    all += difference;
  }
  for (const auto& [name, sum] : sums) {
    EXPECT_TRUE(std::sqrt(sum.first) <= rounded_tolerance(name) * std::sqrt(sum.second))
        << name << ": " << std::sqrt(sum.first / sum.second);
  }
  EXPECT_GT(all, 0) << "nothing was rounded";
}

void expect_rounding_errors(const ModelConfig& config) {
  Case exact(config, {0, 23, 24, 57}, 100, true);
  Case rounded(config, {0, 23, 24, 57}, 100, true, true, 0, ElementType::bf16);
  const double loss = loss_and_gradients(exact), same_loss = loss_and_gradients(rounded);
  EXPECT_EQ(loss, same_loss);
  expect_near(exact, exact.gradients, rounded.gradients);
}

TEST(Decoder, ActivationsInBf16KeepTheLossAndNearlyTheGradients) {
  ModelConfig config{.vocab_size = 61,
                     .hidden_size = 32,
                     .intermediate_size = 48,
                     .num_hidden_layers = 3,
                     .num_attention_heads = 4,
                     .num_key_value_heads = 2};
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    config.residual_scheme = scheme.name;
    expect_rounding_errors(config);
  }
  config.residual_scheme = "pre";
  config.attention_bias = config.mlp_bias = config.qk_norm = true;
  expect_rounding_errors(config);
  config.residual_scheme = "post";
  config.norm_type = NormKind::ln;
  config.sliding_window = 9;
  expect_rounding_errors(config);
}

/// Wide enough that weight gradients are products over all rows, and narrow enough that blocks of rows sum them.
TEST(Decoder, ActivationsInBf16WithWeightGradientsOfBothKinds) {
  for (const auto& [width, by_blocks] : {std::pair(16, true), {256, false}}) {
    SCOPED_TRACE(width);
    const ModelConfig config{.vocab_size = 61,
                             .hidden_size = width,
                             .intermediate_size = 2 * width,
                             .num_hidden_layers = 1,
                             .num_attention_heads = 2,
                             .num_key_value_heads = 1,
                             .residual_scheme = "keel"};
    Case exact(config, {0, 700, 1100}, 90), rounded(config, {0, 700, 1100}, 90, false, true, 0, ElementType::bf16);
    const RowBlocks blocks = decoder_row_blocks(exact.config, 1100, 1100, 2);
    ASSERT_EQ(decoder_block_sums(exact.config, blocks) > 0, by_blocks);
    EXPECT_EQ(decoder_untouched_bytes(exact.config, rounded.plan, blocks), by_blocks ? 1100 * 3 * 2 * width * 4 : 0);
    EXPECT_EQ(loss_and_gradients(exact), loss_and_gradients(rounded));
    expect_near(exact, exact.gradients, rounded.gradients);
  }
}

/// Queries, keys and values, attention output, gate and up, and what an outer norm reads of a branch: half as large.
TEST(Decoder, ActivationsInBf16TakeHalfOfWhatBranchesKeep) {
  const ModelConfig config{.vocab_size = 61,
                           .hidden_size = 64,
                           .intermediate_size = 128,
                           .num_hidden_layers = 3,
                           .num_attention_heads = 4,
                           .num_key_value_heads = 2,
                           .residual_scheme = "keel"};
  const int64_t N = 32, d = 64, projections = 2 * d, F = 128;
  Case exact(config, {0, 32}, 1), rounded(config, {0, 32}, 1, false, true, 0, ElementType::bf16);
  const auto bytes = [](const Case& c, MemoryKind kind) { return c.arena_plan.bytes(kind); };
  const int64_t of_block = N * (projections + d + 2 * F + d);
  const int64_t first_branch = N * d;  // no outer norm behind it
  EXPECT_EQ(bytes(exact, MemoryKind::activations) - bytes(rounded, MemoryKind::activations),
            2 * (3 * of_block + 3 * N * d - first_branch));
  EXPECT_EQ(bytes(rounded, MemoryKind::workspace) - bytes(exact, MemoryKind::workspace),
            4 * N * (projections + d + 2 * F));
}

TEST(Decoder, DocumentsAndLossMaskAgainstTheComplexStep) {
  Case c(small("keel"), {0, 1, 4, 4, 9}, 30, true);
  expect_matches_reference(c);
}

TEST(Decoder, AccumulationAddsExactly) {
  Case c(small("keel"), {0, 5, 9}, 40);
  Context ctx = testing::test_context(1);
  const Arena arena(ctx, c.arena_plan);
  Decoder decoder(ctx, c.config, c.plan, arena);
  std::vector<StepScalars> scalars(1);
  const View<StepScalars, 1> s(scalars.data(), {1});
  ASSERT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), false, s));
  const std::vector<float> once = c.gradients;
  ASSERT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), false, s));
  for (const Parameter& p : c.layout.parameters) {
    for (int64_t i = p.offset; i < p.offset + p.size; ++i)
      ASSERT_EQ(c.gradients[i], once[i]) << p.name << ": not accumulating overwrites";
  }
  ASSERT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), true, s));
  for (const Parameter& p : c.layout.parameters) {
    double worst = 0, largest = 0;
    for (int64_t i = p.offset; i < p.offset + p.size; ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(c.gradients[i]) - 2.0 * once[i]));
      largest = std::max(largest, std::abs(static_cast<double>(once[i])));
    }
    EXPECT_TRUE(worst <= 1e-5 * largest) << p.name;
  }
  EXPECT_EQ(scalars[0].weight_sum, 3 * 9);
}

TEST(Decoder, InferenceWithSharedBuffersGivesTheSameLoss) {
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    std::vector<StepScalars> scalars(2);
    for (bool training : {true, false}) {
      Case c(small(std::string(scheme.name)), {0, 5, 9}, 50, false, training);
      Context ctx = testing::test_context(1);
      const Arena arena(ctx, c.arena_plan);
      Decoder decoder(ctx, c.config, c.plan, arena);
      ASSERT_TRUE(decoder.forward(c.parameters(), c.flat()));
      decoder.loss(c.parameters(), c.flat(), {&scalars[training ? 0 : 1], {1}});
    }
    EXPECT_EQ(scalars[0].loss_sum, scalars[1].loss_sum);
  }
}

void expect_same_bits_for_any_threads(ElementType type) {
  Case c(small("keel"), {0, 40, 90, 130}, 60, false, true, 0, type);
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    Context ctx = testing::test_context(threads);
    const Arena arena(ctx, c.arena_plan);
    Decoder decoder(ctx, c.config, c.plan, arena);
    std::vector<StepScalars> scalars(1);
    ASSERT_TRUE(decoder.forward_backward(c.parameters(), c.flat(), false, {scalars.data(), {1}}));
    std::vector<float> norms;  // the gradients of our own reductions; products belong to the library
    for (const Parameter& p : c.layout.parameters) {
      if (p.parameter_class == ParameterClass::norm)
        norms.insert(norms.end(), c.gradients.begin() + p.offset, c.gradients.begin() + p.offset + p.size);
    }
    if (first.empty()) first = norms;
    EXPECT_EQ(first, norms) << threads;
  }
}

TEST(Decoder, SameBitsForAnyNumberOfThreads) {
  KEEL_SKIP_UNLESS_PRODUCTS_ARE_ALIKE();
  expect_same_bits_for_any_threads(ElementType::fp32);
  expect_same_bits_for_any_threads(ElementType::bf16);
}

TEST(Decoder, InterruptionEndsThePass) {
  Case c(small("keel"), {0, 5}, 70);
  Context ctx = testing::test_context(1);
  const Arena arena(ctx, c.arena_plan);
  int asked = 0, patience = 1000;
  Decoder decoder(ctx, c.config, c.plan, arena, [&] { return ++asked > patience; });
  std::vector<StepScalars> scalars(1);
  const auto run = [&] { return decoder.forward_backward(c.parameters(), c.flat(), false, {scalars.data(), {1}}); };
  EXPECT_TRUE(run());
  patience = std::exchange(asked, 0) - 1;
  EXPECT_FALSE(run()) << "in the backward pass";
  asked = patience = 0;
  EXPECT_TRUE(decoder.forward(c.parameters(), c.flat()) == false && asked == 1);
}

}  // namespace
}  // namespace keel
