// Step 0 of every golden wiring case on a device in bf16: token losses, loss, gradient norm, streams, their gradients and
// the gradient of every parameter lie as far from the float64 values from PyTorch as rounding to bf16 may move them
// (support/perturbation.h), by the reference decoder.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "golden/wiring_case.h"
#include "keel/kernels/cast/cast.h"
#include "keel/model/decoder.h"
#include "keel/model/decoder_backward_ref.h"
#include "keel/model/gradient_profile.h"
#include "support/moved_weights.h"
#include "support/perturbation.h"
#include "support/test_device.h"

namespace keel {
namespace {

using namespace wiring_testing;

/// Numbers by name: token losses, norms of streams and of their gradients, gradients of parameters, all of means.
using Quantities = std::map<std::string, std::vector<double>>;

void add_gradients(const ParameterLayout& layout, const std::vector<double>& summed, double weight_sum,
                   Quantities& quantities) {
  double squares = 0;
  for (const Parameter& p : layout.parameters) {
    if (p.frozen) continue;
    std::vector<double>& gradient = quantities["gradient of " + p.name];
    for (int64_t i = p.offset; i < p.offset + p.size; ++i) {
      gradient.push_back(summed[i] / weight_sum);
      squares += gradient.back() * gradient.back();
    }
  }
  quantities["grad_norm"] = {std::sqrt(squares)};
}

/// Of the reference, with everything that would be rounded moved by `round`.
Quantities reference_quantities(const CaseFiles& files, const std::vector<float>& start,
                                const std::function<void(std::vector<double>&)>& round) {
  const std::vector<double> weights = testing::moved_weights(files.layout, start, round);
  Quantities q;
  std::vector<double> gradient(files.layout.size);
  double loss_sum = 0, weight_sum = 0;
  const int64_t accumulate = files.json["options"]["accumulate"];
  for (int64_t i = accumulate - 1; i >= 0; --i) {
    const CaseBatch batch = files.batch(i);
    const reference::DecoderBatch as_reference{
        batch.tokens, batch.targets, batch.positions, batch.cu_seqlens, {batch.weights.begin(), batch.weights.end()}};
    const auto found = reference::DecoderBackward<double>(files.config, files.layout, weights, as_reference, round)();
    for (size_t k = 0; k < gradient.size(); ++k) gradient[k] += found.parameters[k];
    for (size_t n = 0; n < found.nll.size(); ++n) {
      loss_sum += batch.weights[n] * found.nll[n];
      weight_sum += batch.weights[n];
    }
    if (i > 0) continue;
    q["token losses"] = found.nll;
    for (size_t l = 0; l < found.states.size(); ++l) {
      const double elements = std::sqrt(static_cast<double>(found.states[l].size()));
      q["stream " + std::to_string(l)] = {norm_of(found.states[l]) / elements};
      q["gradient of stream " + std::to_string(l)] = {norm_of(found.streams[l])};
    }
  }
  for (size_t l = 0; q.contains("gradient of stream " + std::to_string(l)); ++l) {
    q["gradient of stream " + std::to_string(l)][0] /= weight_sum;
  }
  q["loss"] = {loss_sum / weight_sum};
  add_gradients(files.layout, gradient, weight_sum, q);
  return q;
}

Quantities device_quantities(const CaseFiles& files, const std::vector<float>& start) {
  const ParameterLayout& layout = files.layout;
  const int64_t N = files.sequences * files.length, n = files.config.sublayers();
  ArenaPlan arena_plan;
  const auto weights = arena_plan.add<float>(MemoryKind::weights, layout.size);
  const auto compute = arena_plan.add<Bf16>(MemoryKind::weights, layout.size);
  const auto gradients = arena_plan.add<float>(MemoryKind::gradients, layout.size);
  const DecoderPlan plan = plan_decoder(
      files.config, all_sublayers(files.config),
      {.max_tokens = N, .max_positions = files.length, .compute = ElementType::bf16, .observe_gradients = true},
      arena_plan);
  const GradientProfilePlan profile_plan = plan_gradient_profile(files.config, layout, N, arena_plan);
  Context ctx = testing::test_context(1);
  const Arena arena(ctx, arena_plan);
  const std::vector<WeightMatrix> matrices = bf16_matrices(layout, arena.at(compute));
  const ParameterBuffers p{.layout = &layout,
                           .weights = {arena.at(weights), {layout.size}},
                           .gradients = {arena.at(gradients), {layout.size}},
                           .compute = matrices};
  std::copy(start.begin(), start.end(), p.weights.data());
  narrow(ctx, View<const float, 2>(arena.at(weights), {1, layout.size}),
         View<Bf16, 2>(arena.at(compute), {1, layout.size}));
  Decoder decoder(ctx, files.config, plan, arena);
  GradientProfiler profiler(ctx, files.config, layout, decoder, profile_plan, arena);
  std::vector<StepScalars> scalars(1);
  std::vector<float> nll(N);
  const int64_t accumulate = files.json["options"]["accumulate"];
  for (int64_t i = accumulate - 1; i >= 0; --i) {
    const CaseBatch batch = files.batch(i);
    profiler.begin();
    EXPECT_TRUE(decoder.forward_backward(p, batch.flat(), i < accumulate - 1, {scalars.data(), {1}}, {nll.data(), {N}},
                                         profiler.observer(p)));
  }
  profiler.end(p);
  const double weight_sum = scalars[0].weight_sum;
  const GradientProfile profile = profiler.fetch(weight_sum);
  Quantities q{{"token losses", {nll.begin(), nll.end()}}, {"loss", {scalars[0].loss_sum / weight_sum}}};
  for (int64_t l = 0; l <= n; ++l) {
    const std::string name = "stream " + std::to_string(l);
    q[name] = {l < n ? profile.sublayers[l].stream_rms : profile.final_stream_rms};
    q["gradient of " + name] = {l < n ? profile.sublayers[l].stream_gradient_norm : profile.final_stream_gradient_norm};
  }
  add_gradients(layout, {p.gradients.data(), p.gradients.data() + layout.size}, weight_sum, q);
  return q;
}

/// What PyTorch has, in place of what the reference says.
void put_golden_values(const CaseFiles& files, Quantities& q) {
  const Json& step = files.json["step0"];
  q["loss"] = {step["loss"].get<double>()};
  q["grad_norm"] = {step["grad_norm"].get<double>()};
  std::vector<double>& nll = q["token losses"];
  const CaseBatch first = files.batch(0);
  files.expect.read(*files.expect.find("token_loss"), std::span<double>(nll));
  for (size_t n = 0; n < nll.size(); ++n) nll[n] = first.weights[n] == 0 ? 0 : nll[n];
  for (int64_t l = 0; l <= files.config.sublayers(); ++l) {
    q["stream " + std::to_string(l)] = {step["stream_rms"][l].get<double>()};
    q["gradient of stream " + std::to_string(l)] = {step["stream_grad_norm"][l].get<double>()};
  }
  for (const Parameter& p : files.layout.parameters) {
    const StoredTensor* stored = files.expect.find("grad." + p.name);
    if (stored != nullptr) files.expect.read(*stored, std::span<double>(q["gradient of " + p.name]));
  }
}

class DeviceGoldenWiringBf16 : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceGoldenWiringBf16, StepZero) {
  if (GetParam().empty()) GTEST_SKIP() << "KEEL_TEST_DATA names no folder with golden/wiring";
  if (!testing::test_device()) GTEST_SKIP() << "of a GPU";
  const CaseFiles files(GetParam());
  std::vector<float> start(files.layout.size);
  files.read_weights(start);
  if (HasFatalFailure()) return;
  const Quantities unmoved = reference_quantities(files, start, {});
  std::map<std::string, testing::Deviation> deviations;
  for (int run = 0; run < testing::kPerturbedRuns; ++run) {
    const Quantities moved = reference_quantities(files, start, testing::Perturbation(static_cast<uint64_t>(run)));
    for (const auto& [name, values] : moved) deviations[name].add(testing::distance(values, unmoved.at(name)));
  }
  Quantities expected = unmoved;
  put_golden_values(files, expected);
  const Quantities found = device_quantities(files, start);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : found) {
    const double off = testing::distance(values, expected.at(name)), tolerance = deviations[name].tolerance();
    EXPECT_TRUE(off <= tolerance) << name << ": off by " << off << " of " << norm_of(expected.at(name))
                                  << ", rounding may do " << tolerance;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DeviceGoldenWiringBf16, ::testing::ValuesIn(case_names()),
                         [](const auto& info) { return info.param.empty() ? std::string("NoData") : info.param; });

}  // namespace
}  // namespace keel
