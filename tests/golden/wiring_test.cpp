// Step 0 of every golden wiring case: streams and their gradients, token losses, logits, loss, gradient norm and the
// gradient of every parameter against float64 values from PyTorch (golden/wiring/README.md states the tolerances).
#include <gtest/gtest.h>

#include <cmath>

#include "golden/wiring_case.h"
#include "keel/kernels/grad_norm/grad_norm.h"
#include "keel/model/decoder.h"
#include "keel/model/gradient_profile.h"
#include "keel/model/skip_profile.h"
#include "support/test_device.h"

namespace keel {
namespace {

using namespace wiring_testing;

class GoldenWiring : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenWiring, StepZero) {
  if (GetParam().empty()) GTEST_SKIP() << "KEEL_TEST_DATA names no folder with golden/wiring";
  const CaseFiles files(GetParam());
  const Json& json = files.json;
  const Json& options = json["options"];
  const bool deep = files.is_deep(), keel_deep = deep && json["scheme"] == "keel";
  const SafetensorsFile& expect = files.expect;
  const int64_t B = files.sequences, T = files.length, N = B * T;
  const ModelConfig& config = files.config;

  // The wiring itself, row by row.
  for (int64_t l = 0; l < config.sublayers(); ++l) {
    const Json& row = json["wiring"][std::to_string(l)];
    const Wiring w = wiring_table(config)[l];
    const Json found = {{"inner", to_string(w.inner)},
                        {"branch", to_string(w.branch)},
                        {"outer", to_string(w.outer)},
                        {"a", w.a},
                        {"b", w.b},
                        {"ns", w.ns},
                        {"qkv", to_string(w.qkv)},
                        {"in_scale", to_string(w.in_scale)},
                        {"skip_scale", to_string(w.skip_scale)},
                        {"branch_scale", to_string(w.branch_scale)}};
    EXPECT_EQ(row, found) << l;
  }

  const ParameterLayout& layout = files.layout;
  ArenaPlan arena_plan;
  const auto weights = arena_plan.add<float>(MemoryKind::weights, layout.size);
  const auto gradients = arena_plan.add<float>(MemoryKind::gradients, layout.size);
  const DecoderPlan plan =
      plan_decoder(config, all_sublayers(config),
                   {.max_tokens = N, .max_positions = T, .training = true, .observe_gradients = true}, arena_plan);
  const GradientProfilePlan profile_plan = plan_gradient_profile(config, layout, N, arena_plan);
  Context ctx = testing::test_context(2);
  const Arena arena(ctx, arena_plan);
  const ParameterBuffers p{.layout = &layout,
                           .weights = {arena.at(weights), {layout.size}},
                           .gradients = {arena.at(gradients), {layout.size}}};
  files.read_weights({p.weights.data(), static_cast<size_t>(layout.size)});
  if (HasFatalFailure()) return;

  Decoder decoder(ctx, config, plan, arena);
  std::vector<StepScalars> scalars(1);
  scalars[0].clip = INFINITY;
  const View<StepScalars, 1> s(scalars.data(), {1});
  std::vector<float> nll(N);
  const int64_t n = config.sublayers();
  GradientProfiler profiler(ctx, config, layout, decoder, profile_plan, arena);
  const int64_t accumulate = options["accumulate"];
  for (int64_t i = accumulate - 1; i >= 0; --i) {  // batch 0 last, so that its values are there to look at
    const CaseBatch batch = files.batch(i);
    profiler.begin();
    ASSERT_TRUE(
        decoder.forward_backward(p, batch.flat(), i < accumulate - 1, s, {nll.data(), {N}}, profiler.observer(p)));
  }
  profiler.end(p);
  const GradientProfile profile = profiler.fetch(scalars[0].weight_sum);
  std::vector<double> partial(layout.size / kGradNormChunk + 1);
  grad_norm(ctx, p.gradients, s, {partial.data(), {(layout.size + kGradNormChunk - 1) / kGradNormChunk}});

  std::vector<double> expected_nll(N), logits_last(B * config.vocab_size);
  expect.read(*expect.find("token_loss"), std::span<double>(expected_nll));
  expect.read(*expect.find("logits_last"), std::span<double>(logits_last));
  const CaseBatch first = files.batch(0);
  for (int64_t n = 0; n < N; ++n) {
    const double wanted = first.weights[n] == 0 ? 0 : expected_nll[n];  // what does not count is not computed
    ASSERT_TRUE(std::abs(nll[n] - wanted) <= 1e-5) << "token loss " << n << ": " << nll[n] << " " << wanted;
  }
  const View<const float, 2> x = decoder.head_input().as<float>();
  const View<const float, 2> W = p.matrix(layout.head).as<float>();
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t v = 0; v < config.vocab_size; ++v) {
      double logit = 0;
      for (int64_t c = 0; c < config.hidden_size; ++c) logit += static_cast<double>(x((b + 1) * T - 1, c)) * W(v, c);
      ASSERT_TRUE(std::abs(logit - logits_last[b * config.vocab_size + v]) <= 1e-5) << b << " " << v;
    }
  }
  const double loss = scalars[0].loss_sum / scalars[0].weight_sum;
  EXPECT_TRUE(std::abs(loss - json["step0"]["loss"].get<double>()) <= 2e-6) << loss;
  const double grad_norm_expected = json["step0"]["grad_norm"];
  EXPECT_TRUE(std::abs(scalars[0].grad_norm / grad_norm_expected - 1) <= (keel_deep ? 5e-5 : 1e-6))
      << scalars[0].grad_norm;

  const double tolerance = keel_deep ? 3e-4 : 1e-5;
  for (int64_t l = 0; l <= n; ++l) {
    const double rms = json["step0"]["stream_rms"][l], gradient = json["step0"]["stream_grad_norm"][l];
    const double found_rms = l < n ? profile.sublayers[l].stream_rms : profile.final_stream_rms;
    const double found = l < n ? profile.sublayers[l].stream_gradient_norm : profile.final_stream_gradient_norm;
    EXPECT_TRUE(std::abs(found_rms - rms) <= tolerance * rms) << "stream " << l;
    EXPECT_TRUE(std::abs(found - gradient) <= tolerance * gradient) << "gradient of stream " << l;
  }
  int64_t stored_gradients = 0;
  for (const Parameter& parameter : layout.parameters) {
    if (parameter.frozen) {
      EXPECT_FALSE(json["step0"]["grads"].contains(parameter.name)) << parameter.name;
      continue;
    }
    std::vector<double> g(parameter.size);
    double probe = 0;
    for (int64_t i = 0; i < parameter.size; ++i) {
      g[i] = p.gradients(parameter.offset + i) / scalars[0].weight_sum;
      probe += g[i] * std::cos(static_cast<double>(i));
    }
    const Json& pinned = json["step0"]["grads"][parameter.name];
    const double norm = pinned["norm"];
    EXPECT_TRUE(std::abs(norm_of(g) - norm) <= tolerance * norm) << parameter.name << " " << norm_of(g) << " " << norm;
    // |probe error| <= |difference|_2 |cos|_2, and |cos|_2 <= sqrt(size).
    const double probe_tolerance = tolerance * norm * std::sqrt(static_cast<double>(parameter.size));
    EXPECT_TRUE(std::abs(probe - pinned["probe"].get<double>()) <= probe_tolerance) << parameter.name;
    const StoredTensor* stored = expect.find("grad." + parameter.name);
    if (stored == nullptr) continue;
    ++stored_gradients;
    std::vector<double> difference(parameter.size);
    expect.read(*stored, std::span<double>(difference));
    for (int64_t i = 0; i < parameter.size; ++i) difference[i] -= g[i];
    EXPECT_TRUE(norm_of(difference) <= tolerance * norm) << parameter.name << " " << norm_of(difference) / norm;
  }
  EXPECT_TRUE(deep || stored_gradients > 0);

  if (!json["step0"].contains("admin_profiled_omegas")) return;
  ASSERT_TRUE(profile_skip_scales(ctx, decoder, p, first.flat()));
  for (int64_t l = 0; l < n; ++l) {
    const double omega = json["step0"]["admin_profiled_omegas"][l];
    const int64_t offset = layout.at(layout.sublayers[l].skip_scale).offset;
    for (int64_t c = 0; c < config.hidden_size; ++c) {
      ASSERT_TRUE(std::abs(p.weights(offset + c) - omega) <= 1e-6 * omega) << l << " " << p.weights(offset + c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenWiring, ::testing::ValuesIn(case_names()),
                         [](const auto& info) { return info.param.empty() ? std::string("NoData") : info.param; });

}  // namespace
}  // namespace keel
