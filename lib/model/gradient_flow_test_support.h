#pragma once

// Models of width 128 with random weights, one sequence of 128 random tokens, and how their gradients flow at
// initialisation.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "keel/model/decoder.h"
#include "keel/model/residual_wiring.h"
#include "support/numeric.h"

namespace keel::gradient_flow_testing {

inline constexpr int64_t kWidth = 128, kTokens = 128, kVocabulary = 512;
inline constexpr int64_t kFirst = 2;  ///< G and P begin behind the first block, whose exceptions differ between schemes

struct Stack {
  std::string scheme;
  bool plain = false;       ///< without the scheme's own factors of the initial matrices
  double weight_scale = 1;  ///< of the branches' matrices
  std::optional<double> alpha = {};
};

/// G = |dLoss/dx_2| / |dLoss/dx_L|, the whole gradient; P = product over l >= 2 of a r_o, the skip path alone without
/// any branch's Jacobian, geometric mean over tokens.
struct Flow {
  double G = 0, log_P = 0;
  std::vector<double> gradient, stream_rms;  ///< [L + 1]
  double token_cosine = 0;                   ///< mean over pairs of tokens, of x_L
  /// Of the rows: the largest difference between log P and its sum over moments of x and F; the largest |log P|; what
  /// leaving out mean(x F) changes at most.
  double moments_difference = 0, cross_term = 0;
};

inline double norm_of(View<const float, 2> dense) {
  double sum = 0;
  for (int64_t i = 0; i < dense.size(); ++i) sum += static_cast<double>(dense.data()[i]) * dense.data()[i];
  return std::sqrt(sum);
}

/// The mean cosine follows from the norm of the sum of unit rows: |sum|^2 = N + sum over pairs.
inline double mean_cosine(View<const float, 2> x) {
  const int64_t N = x.extent(0), d = x.extent(1);
  std::vector<double> sum(d);
  for (int64_t n = 0; n < N; ++n) {
    double squares = 0;
    for (int64_t c = 0; c < d; ++c) squares += static_cast<double>(x(n, c)) * x(n, c);
    for (int64_t c = 0; c < d; ++c) sum[c] += x(n, c) / std::sqrt(squares);
  }
  double squares = 0;
  for (const double s : sum) squares += s * s;
  return (squares - static_cast<double>(N)) / static_cast<double>(N * (N - 1));
}

class RandomModel {
 public:
  RandomModel(const Stack& stack, int64_t sublayers, uint64_t seed)
      : config_(resolved({.vocab_size = kVocabulary,
                          .hidden_size = kWidth,
                          .intermediate_size = 384,
                          .num_hidden_layers = sublayers / 2,
                          .num_attention_heads = 4,
                          .initializer_range = 0.0566,
                          .residual_scheme = stack.scheme,
                          .residual_alpha = stack.alpha})),
        layout_(parameter_layout(config_, {.plain = stack.plain})) {
    layout_.parameters[layout_.embedding].initial_std = 0.02;
    for (Parameter& p : layout_.parameters) {
      const ParameterClass c = p.parameter_class;
      if (c == ParameterClass::attention || c == ParameterClass::mlp) p.initial_std *= stack.weight_scale;
    }
    weights_ = plan_.add<float>(MemoryKind::weights, layout_.size);
    gradients_ = plan_.add<float>(MemoryKind::gradients, layout_.size);
    decoder_plan_ = plan_decoder(
        config_, all_sublayers(config_),
        {.max_tokens = kTokens, .max_positions = kTokens, .training = true, .observe_gradients = true}, plan_);
    arena_.emplace(plan_);
    draw_weights(seed);
    testing::Random random(seed);
    for (int32_t n = 0; n < kTokens; ++n) {
      tokens_.push_back(static_cast<int32_t>(random.integer(0, kVocabulary - 1)));
      targets_.push_back(static_cast<int32_t>(random.integer(0, kVocabulary - 1)));
      positions_.push_back(n);
    }
  }

  Flow flow() {
    const int64_t L = config_.sublayers();
    Flow flow{.gradient = std::vector<double>(L + 1), .stream_rms = std::vector<double>(L + 1)};
    std::vector<RowMoments> moments(L);
    Context ctx(2);
    Decoder decoder(ctx, config_, decoder_plan_, *arena_);
    std::vector<StepScalars> scalars(1);
    const bool finished = decoder.forward_backward(
        parameters(), batch(), false, {scalars.data(), {1}}, {},
        {.branch =
             [&](int64_t l, View<const float, 2> x, AnyView<const void, 2> F) {
               flow.stream_rms[l] = norm_of(x) / std::sqrt(static_cast<double>(x.size()));
               moments[l] = RowMoments(x, F.as<float>());
             },
         .gradient = [&](int64_t l, View<const float, 2> g) { flow.gradient[l] = norm_of(g); }});
    EXPECT_TRUE(finished);
    flow.G = flow.gradient[kFirst] / flow.gradient[L];
    flow.token_cosine = mean_cosine(decoder.stream(L));
    skip_path(decoder, moments, flow);
    return flow;
  }

 private:
  /// What initialise_parameters gives, but drawn once a process and seed: stacks share their tensors' starts, and drawing
  /// costs more than a pass.
  void draw_weights(uint64_t seed) {
    static std::map<std::pair<uint64_t, std::string>, std::vector<float>> known;
    for (const Parameter& p : layout_.parameters) {
      std::vector<float> constant;
      std::vector<float>& values = p.initial_std == 0 ? constant : known[{seed, p.name}];
      const bool is_random = p.initial_std > 0;
      if (values.empty()) {
        values.resize(p.size);
        Parameter alone = p;
        alone.offset = 0;
        if (is_random) alone.initial_std = 1;
        initialise_parameters({.parameters = {alone}, .size = p.size}, seed, {}, {values.data(), {p.size}});
      }
      const auto factor = static_cast<float>(is_random ? p.initial_std : 1);
      float* weights = arena_->at(weights_) + p.offset;
      for (int64_t i = 0; i < p.size; ++i) weights[i] = factor * values[i];
    }
  }

  /// Of every row: means of x^2, x F, F^2, x and F.
  struct RowMoments {
    RowMoments() = default;
    RowMoments(View<const float, 2> x, View<const float, 2> F) {
      const double d = static_cast<double>(x.extent(1));
      for (int64_t n = 0; n < x.extent(0); ++n) {
        double sums[5] = {};
        for (int64_t c = 0; c < x.extent(1); ++c) {
          const double xc = x(n, c), Fc = F(n, c);
          sums[0] += xc * xc / d;
          sums[1] += xc * Fc / d;
          sums[2] += Fc * Fc / d;
          sums[3] += xc / d;
          sums[4] += Fc / d;
        }
        xx.push_back(sums[0]);
        xF.push_back(sums[1]);
        FF.push_back(sums[2]);
        x_mean.push_back(sums[3]);
        F_mean.push_back(sums[4]);
      }
    }
    std::vector<double> xx, xF, FF, x_mean, F_mean;
  };

  void skip_path(const Decoder& decoder, const std::vector<RowMoments>& moments, Flow& flow) const {
    const std::vector<Wiring> wiring = wiring_table(config_);
    for (int64_t n = 0; n < kTokens; ++n) {
      double log_P = 0, from_moments = 0, without_cross = 0;
      for (int64_t l = kFirst; l < config_.sublayers(); ++l) {
        const SkipFactors factors = decoder.skip_factors(parameters(), l);
        const double a = factors.a(0);
        log_P += std::log(a);
        from_moments += std::log(a);
        without_cross += std::log(a);
        if (!factors.outer_r) continue;
        log_P += std::log(static_cast<double>(factors.outer_r(n)));
        const RowMoments& m = moments[l];
        double squares = a * a * m.xx[n] + m.FF[n] + config_.rms_norm_eps;
        if (wiring[l].outer == NormKind::ln) {
          const double mean = a * m.x_mean[n] + m.F_mean[n];
          squares -= mean * mean;
        }
        from_moments -= 0.5 * std::log(squares + 2 * a * m.xF[n]);
        without_cross -= 0.5 * std::log(squares);
      }
      flow.log_P += log_P / kTokens;
      const double difference = std::abs(log_P - from_moments);
      flow.moments_difference = std::isnan(difference) ? INFINITY : std::max(flow.moments_difference, difference);
      flow.cross_term = std::max(flow.cross_term, std::abs(without_cross - from_moments));
    }
  }

  ParameterBuffers parameters() const {
    return {.layout = &layout_,
            .weights = {arena_->at(weights_), {layout_.size}},
            .gradients = {arena_->at(gradients_), {layout_.size}}};
  }
  FlatBatch batch() const {
    return {.tokens = {tokens_.data(), {kTokens}},
            .targets = {targets_.data(), {kTokens}},
            .positions = {positions_.data(), {kTokens}},
            .weights = {loss_weights_.data(), {kTokens}},
            .cu_seqlens = {cu_seqlens_.data(), {2}}};
  }

  ModelConfig config_;
  ParameterLayout layout_;
  ArenaPlan plan_;
  Region<float> weights_, gradients_;
  DecoderPlan decoder_plan_;
  std::optional<Arena> arena_;
  std::vector<int32_t> tokens_, targets_, positions_, cu_seqlens_{0, kTokens};
  std::vector<float> loss_weights_ = std::vector<float>(kTokens, 1.0F);
};

}  // namespace keel::gradient_flow_testing
