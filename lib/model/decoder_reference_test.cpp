// The reference's backward pass in double against complex steps of its forward pass.
#include "keel/model/decoder_backward_ref.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <map>

#include "keel/model/decoder_test_support.h"
#include "support/numeric.h"

namespace keel {
namespace {

using Complex = std::complex<double>;
using decoder_testing::Case;
using decoder_testing::small;

constexpr int kDirections = 3;

/// For every tensor, in random directions v:  |<g, v> - Im L(w + i h v) / h| <= 1e-12 |g| |v|.
void expect_agrees_with_complex_steps(const Case& c, uint64_t seed) {
  const std::vector<double> weights(c.weights.begin(), c.weights.end());
  const auto gradient = reference::DecoderBackward<double>(c.config, c.layout, weights, c.batch)().parameters;
  std::vector<Complex> at(weights.begin(), weights.end());
  const reference::Decoder<Complex> model(c.config, c.layout, at, c.batch);
  testing::Random random(seed);
  std::vector<bool> covered(gradient.size());
  for (const Parameter& p : c.layout.parameters) {
    for (int k = 0; k < kDirections; ++k) {
      double along = 0, g2 = 0, v2 = 0;
      for (int64_t i = p.offset; i < p.offset + p.size; ++i) {
        const double v = random.normal();
        at[i].imag(testing::kComplexStep * v);
        along += gradient[i] * v;
        g2 += gradient[i] * gradient[i];
        v2 += v * v;
        covered[i] = true;
      }
      const double expected = std::imag(model.loss()) / testing::kComplexStep;
      for (int64_t i = p.offset; i < p.offset + p.size; ++i) at[i].imag(0);
      EXPECT_GT(g2, 0) << p.name;
      EXPECT_TRUE(std::abs(along - expected) <= 1e-12 * std::sqrt(g2 * v2))
          << p.name << ": " << along << " " << expected << ", off by " << (along - expected) / std::sqrt(g2 * v2)
          << " of |g||v|";
    }
  }
  for (size_t i = 0; i < gradient.size(); ++i) {
    ASSERT_TRUE(covered[i] || gradient[i] == 0) << "the gap at " << i;
  }
}

TEST(DecoderReference, EveryScheme) {
  uint64_t seed = 300;
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    const Case c(small(std::string(scheme.name)), {0, 5, 9}, seed);
    expect_agrees_with_complex_steps(c, ++seed);
  }
}

/// Norms of another kind, a final norm where the scheme has none and the other way round, learned skip scales.
TEST(DecoderReference, SchemesWithOtherNormsAndLearnedScales) {
  uint64_t seed = 400;
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    for (const NormKind norm : {NormKind::rms, NormKind::ln}) {
      SCOPED_TRACE(to_string(norm));
      ModelConfig config = small(std::string(scheme.name));
      config.norm_type = norm;
      config.final_norm = !scheme.final_norm;
      config.learnable_alpha = scheme.accepts_alpha;
      const Case c(config, {0, 5}, seed);
      expect_agrees_with_complex_steps(c, ++seed);
    }
  }
}

TEST(DecoderReference, Options) {
  std::map<std::string, ModelConfig> configs;
  const auto add = [&](const std::string& name, const std::string& scheme) -> ModelConfig& {
    return configs.emplace(name, small(scheme)).first->second;
  };
  add("tied", "keel").tie_word_embeddings = true;
  add("alpha", "keel").residual_alpha = 2.5;
  add("mix of one half", "mix").mix_fraction = 0.5;
  add("omegas that are constants", "admin").admin_frozen = true;
  add("attention bias", "pre").attention_bias = true;
  add("qkv bias", "keel").qkv_bias = true;
  add("mlp bias", "post").mlp_bias = true;
  add("qk norm", "keel").qk_norm = true;
  add("window", "pre").sliding_window = 3;
  ModelConfig& one_window = add("window in block 1", "pre");
  one_window.sliding_window = 2;
  one_window.sliding_layers = {false, true};
  add("rope", "pre").rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = 3};
  ModelConfig& all = add("many", "sandwich");
  all.tie_word_embeddings = all.attention_bias = all.mlp_bias = all.qk_norm = true;
  all.norm_type = NormKind::ln;
  uint64_t seed = 500;
  for (const auto& [name, config] : configs) {
    SCOPED_TRACE(name);
    const Case c(config, {0, 7}, seed);
    expect_agrees_with_complex_steps(c, ++seed);
  }
}

TEST(DecoderReference, DocumentsAndLossWeights) {
  Case c(small("keel"), {0, 1, 4, 4, 9}, 600, true);
  c.batch.weights[2] = 0.25;
  expect_agrees_with_complex_steps(c, 601);
}

TEST(DecoderReference, Deep) {
  for (const char* scheme : {"keel", "pre", "post", "hybrid"}) {
    SCOPED_TRACE(scheme);
    ModelConfig config = small(scheme);
    config.num_hidden_layers = 12;
    const Case c(config, {0, 6}, 700);
    expect_agrees_with_complex_steps(c, 701);
  }
}

}  // namespace
}  // namespace keel
