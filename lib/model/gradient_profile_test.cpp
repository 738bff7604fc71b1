#include "keel/model/gradient_profile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/model/decoder_backward_ref.h"
#include "keel/model/decoder_test_support.h"
#include "support/numeric.h"
#include "support/test_device.h"

namespace keel {
namespace {

using decoder_testing::Case;
using decoder_testing::small;

/// As kTensorTolerance of decoder_test.cpp: some twenty operations deep, each within a few sqrt(n) u of exact.
constexpr double kTolerance = 1e-5;

/// A profile of these passes of one case, in this order; `threads` of its own.
GradientProfile profile_of(Case& c, const std::vector<FlatBatch>& micro_batches, int threads = 2) {
  ArenaPlan arena_plan;
  DecoderOptions options = c.plan.options;
  options.observe_gradients = true;
  const DecoderPlan decoder_plan = plan_decoder(c.config, all_sublayers(c.config), options, arena_plan);
  const GradientProfilePlan plan = plan_gradient_profile(c.config, c.layout, options.max_tokens, arena_plan);
  Context ctx = testing::test_context(threads);
  const Arena arena(ctx, arena_plan);
  Decoder decoder(ctx, c.config, decoder_plan, arena);
  GradientProfiler profiler(ctx, c.config, c.layout, decoder, plan, arena);
  const ParameterBuffers parameters = c.parameters();
  std::vector<StepScalars> scalars(1);
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second must not see the first
    profiler.begin();
    scalars[0] = {};
    bool first = true;
    for (const FlatBatch& batch : micro_batches) {
      EXPECT_TRUE(decoder.forward_backward(parameters, batch, !first, {scalars.data(), {1}}, {},
                                           profiler.observer(parameters)));
      first = false;
    }
    profiler.end(parameters);
  }
  return profiler.fetch(scalars[0].weight_sum);
}

std::vector<double> numbers_of(const GradientProfile& profile) {
  std::vector<double> numbers;
  const auto add_weights = [&](const std::vector<WeightGradientNorm>& norms) {
    for (const WeightGradientNorm& norm : norms) numbers.push_back(norm.norm);
  };
  for (const SublayerProfile& s : profile.sublayers) {
    numbers.insert(numbers.end(),
                   {s.stream_gradient_norm, s.stream_rms, s.branch_rms, s.stream_branch_cosine, s.skip_gain});
    add_weights(s.weight_gradient_norms);
  }
  numbers.insert(numbers.end(),
                 {profile.final_stream_gradient_norm, profile.final_stream_rms, profile.log_skip_product});
  add_weights(profile.weight_gradient_norms);
  return numbers;
}

double rms(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum / static_cast<double>(v.size()));
}

double cosine(const std::vector<double>& v, const std::vector<double>& w) {
  double sum = 0;
  for (size_t i = 0; i < v.size(); ++i) sum += v[i] * w[i];
  return sum / (static_cast<double>(v.size()) * rms(v) * rms(w));
}

/// Mean over the rows of z of log r, r = 1 / sqrt(variance or mean square + eps).
double mean_log_norm(const std::vector<double>& z, NormKind kind, int64_t d, double eps) {
  if (kind == NormKind::none) return 0;
  double logs = 0;
  const int64_t rows = std::ssize(z) / d;
  for (int64_t n = 0; n < rows; ++n) {
    double mean = 0, square = 0;
    for (int64_t c = 0; c < d; ++c) mean += z[n * d + c] / static_cast<double>(d);
    if (kind == NormKind::rms) mean = 0;
    for (int64_t c = 0; c < d; ++c) square += std::pow(z[n * d + c] - mean, 2) / static_cast<double>(d);
    logs -= 0.5 * std::log(square + eps);
  }
  return logs / static_cast<double>(rows);
}

void expect_near(double found, double expected, const std::string& what) {
  EXPECT_TRUE(testing::is_close(found, expected, kTolerance * std::abs(expected)))
      << what << ": " << found << ", expected " << expected;
}

double log_skip_gain(const Case& c, int64_t l, const std::vector<double>& z) {
  const SublayerParameters& own = c.layout.sublayers[l];
  const Wiring wiring = wiring_table(c.config)[l];
  const int64_t d = c.config.hidden_size;
  double gain = std::log(wiring.a) + mean_log_norm(z, wiring.outer, d, c.config.rms_norm_eps);
  if (own.skip_exponent >= 0) gain += c.weights[c.layout.at(own.skip_exponent).offset];
  for (int64_t i = 0; own.skip_scale >= 0 && i < d; ++i) {
    gain += std::log(std::abs(c.weights[c.layout.at(own.skip_scale).offset + i])) / static_cast<double>(d);
  }
  return gain;
}

/// Every number against the reference in double.
void expect_matches_reference(Case& c) {
  const GradientProfile profile = profile_of(c, {c.flat()});
  const int64_t L = c.config.sublayers();
  const std::vector<double> weights(c.weights.begin(), c.weights.end());
  const reference::Decoder<double> model(c.config, c.layout, weights, c.batch);
  const auto gradient = reference::DecoderBackward<double>(c.config, c.layout, weights, c.batch)();
  double weight_sum = 0;
  for (double weight : c.batch.weights) weight_sum += weight;
  const auto gradient_norm = [&](int64_t l) {
    return rms(gradient.streams[l]) * std::sqrt(static_cast<double>(gradient.streams[l].size())) / weight_sum;
  };
  std::vector<double> x = model.embedded();
  double log_product = 0;
  for (int64_t l = 0; l < L; ++l) {
    SCOPED_TRACE("sublayer " + std::to_string(l));
    const SublayerProfile& s = profile.sublayers[l];
    const auto expected = model.sublayer(l, x);
    const double log_gain = log_skip_gain(c, l, expected.z);
    expect_near(s.stream_gradient_norm, gradient_norm(l), "gradient of the stream");
    expect_near(s.stream_rms, rms(x), "stream");
    expect_near(s.branch_rms, rms(expected.F), "branch");
    EXPECT_NEAR(s.stream_branch_cosine, cosine(x, expected.F), kTolerance);
    expect_near(s.skip_gain, std::exp(log_gain), "skip gain");
    log_product += log_gain;
    x = expected.next;
  }
  expect_near(profile.final_stream_gradient_norm, gradient_norm(L), "gradient of the last stream");
  expect_near(profile.final_stream_rms, rms(x), "last stream");
  EXPECT_NEAR(profile.log_skip_product, log_product, kTolerance * static_cast<double>(L));
}

TEST(GradientProfile, EverySchemeAgainstTheReference) {
  uint64_t seed = 1;
  for (const ResidualScheme& scheme : residual_schemes()) {
    SCOPED_TRACE(scheme.name);
    ModelConfig config = small(std::string(scheme.name));
    config.learnable_alpha = scheme.accepts_alpha;
    Case c(config, {0, 5, 9}, seed++, true);
    if (scheme.profiled_skip) {  // a trained vector may have either sign
      const Parameter& omega = c.layout.at(c.layout.sublayers[1].skip_scale);
      c.weights[omega.offset + 1] *= -1;
    }
    expect_matches_reference(c);
  }
}

TEST(GradientProfile, WeightNormsByName) {
  ModelConfig config = small("keel");
  config.attention_bias = true;
  config.norm_type = NormKind::ln;
  config.final_norm = true;
  Case c(config, {0, 5, 9}, 90);
  const GradientProfile profile = profile_of(c, {c.flat()});
  const auto expect = [&](const std::vector<WeightGradientNorm>& norms, const std::string& name,
                          const std::string& tensor) {
    SCOPED_TRACE(tensor);
    const auto found = std::find_if(norms.begin(), norms.end(), [&](const auto& norm) { return norm.name == name; });
    ASSERT_NE(found, norms.end());
    for (const Parameter& p : c.layout.parameters) {
      if (p.name != tensor) continue;
      double sum = 0;
      for (int64_t i = p.offset; i < p.offset + p.size; ++i) sum += std::pow(static_cast<double>(c.gradients[i]), 2);
      EXPECT_TRUE(testing::is_close(found->norm, std::sqrt(sum) / 9, 1e-12)) << found->norm;
      return;
    }
    FAIL() << "no such tensor";
  };
  const auto& attention = profile.sublayers[2].weight_gradient_norms;
  const auto& mlp = profile.sublayers[3].weight_gradient_norms;
  expect(attention, "q_proj", "model.layers.1.self_attn.q_proj.weight");
  expect(attention, "v_proj.bias", "model.layers.1.self_attn.v_proj.bias");
  expect(attention, "input_layernorm", "model.layers.1.input_layernorm.weight");
  expect(attention, "outer_attention_layernorm.bias", "model.layers.1.outer_attention_layernorm.bias");
  expect(mlp, "down_proj", "model.layers.1.mlp.down_proj.weight");
  expect(mlp, "post_attention_layernorm", "model.layers.1.post_attention_layernorm.weight");
  expect(profile.weight_gradient_norms, "embedding", "model.embed_tokens.weight");
  expect(profile.weight_gradient_norms, "final_norm", "model.norm.weight");
  expect(profile.weight_gradient_norms, "final_norm.bias", "model.norm.bias");
  expect(profile.weight_gradient_norms, "head", "lm_head.weight");
  size_t named = profile.weight_gradient_norms.size();
  for (const SublayerProfile& s : profile.sublayers) named += s.weight_gradient_norms.size();
  EXPECT_EQ(named, c.layout.parameters.size()) << "each tensor once";
}

TEST(GradientProfile, ConstantsHaveNoGradientAndSharedScalesOne) {
  ModelConfig frozen = small("admin");
  frozen.admin_frozen = frozen.tie_word_embeddings = true;
  Case a(frozen, {0, 5}, 91);
  const GradientProfile admin = profile_of(a, {a.flat()});
  for (const SublayerProfile& s : admin.sublayers) {
    for (const WeightGradientNorm& norm : s.weight_gradient_norms) {
      EXPECT_EQ(norm.name.find("skip_scale"), std::string::npos);
    }
  }
  ASSERT_EQ(admin.weight_gradient_norms.size(), 1);
  EXPECT_EQ(admin.weight_gradient_norms[0].name, "embedding");
  Case r(small("rezero"), {0, 5}, 92);
  const GradientProfile rezero = profile_of(r, {r.flat()});
  EXPECT_EQ(rezero.sublayers[2].weight_gradient_norms.back().name, "residual_scale");
  EXPECT_EQ(rezero.sublayers[3].weight_gradient_norms.size(), 3);
}

/// Also that looking on leaves the gradients as they are.
TEST(GradientProfile, SameBitsInEveryRecomputeModeAndForAnyThreads) {
  for (const char* scheme : {"keel", "pre", "admin", "sandwich"}) {
    SCOPED_TRACE(scheme);
    ModelConfig config = small(scheme);
    config.num_hidden_layers = 3;
    std::vector<double> first;
    std::vector<float> gradients;
    for (const int64_t segment : {0, 1, 2, 4}) {
      for (const int threads : {1, 2}) {
        Case c(config, {0, 3, 9}, 80, false, true, segment);
        const std::vector<double> found = numbers_of(profile_of(c, {c.flat()}, threads));
        if (first.empty()) {
          first = found;
          Case unobserved(config, {0, 3, 9}, 80);
          Context ctx = testing::test_context(threads);
          const Arena arena(ctx, unobserved.arena_plan);
          std::vector<StepScalars> scalars(1);
          ASSERT_TRUE(Decoder(ctx, unobserved.config, unobserved.plan, arena)
                          .forward_backward(unobserved.parameters(), unobserved.flat(), false, {scalars.data(), {1}}));
          gradients = unobserved.gradients;
        }
        EXPECT_EQ(found, first) << "segments of " << segment << ", " << threads << " threads";
        for (const Parameter& p : c.layout.parameters) {
          for (int64_t i = p.offset; i < p.offset + p.size; ++i) ASSERT_EQ(c.gradients[i], gradients[i]) << p.name;
        }
      }
    }
  }
}

/// The same rows in one micro-batch or in two of different sizes.
TEST(GradientProfile, MicroBatchesAddUp) {
  for (const char* scheme : {"keel", "deepnorm", "hybrid"}) {
    SCOPED_TRACE(scheme);
    Case c(small(scheme), {0, 7, 9}, 95, true);
    const std::vector<double> whole = numbers_of(profile_of(c, {c.flat()}));
    Case split(small(scheme), {0, 7, 9}, 95, true);
    const FlatBatch all = split.flat();
    std::vector<FlatBatch> parts;
    const std::vector<std::vector<int32_t>> bounds{{0, 7}, {0, 2}};
    for (int64_t part = 0, begin = 0; part < 2; begin += bounds[part++].back()) {
      const int64_t rows = bounds[part].back();
      parts.push_back({.tokens = {all.tokens.data() + begin, {rows}},
                       .targets = {all.targets.data() + begin, {rows}},
                       .positions = {all.positions.data() + begin, {rows}},
                       .weights = {all.weights.data() + begin, {rows}},
                       .cu_seqlens = Case::view(bounds[part])});
    }
    const std::vector<double> in_parts = numbers_of(profile_of(split, parts));
    ASSERT_EQ(whole.size(), in_parts.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(testing::is_close(in_parts[i], whole[i], 1e-6 * std::max(std::abs(whole[i]), 0.01)))
          << i << ": " << in_parts[i] << " " << whole[i];
    }
  }
}

}  // namespace
}  // namespace keel
