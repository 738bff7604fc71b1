#include "keel/train/step_profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "keel/base/config.h"
#include "keel/model/parameters.h"
#include "support/keel_folder.h"

namespace keel {
namespace {

constexpr MachineLimits kLimits{.bytes_per_second = 10, .flops_per_second = 200, .product_flops_per_second = 100};

/// 3 s: a product at 80 % of its limit, an operation that moves bytes, one that has nothing to do.
StepProfile known_profile() {
  StepProfile p{.steps = 5,
                .tokens_per_step = 600,
                .micro_batch_sequences = 2,
                .threads = 2,
                .isa = Isa::avx2,
                .flops_per_token = 0.3,
                .limits = kLimits};
  p.step.seconds = 3;
  p.step.operations["product"] = {.calls = 4, .seconds = 1.25, .flops = 100, .bytes = 1};
  p.step.operations["adamw"] = {.calls = 1, .seconds = 1.5, .flops = 20, .bytes = 18};
  p.step.operations["idle"] = {.calls = 2, .seconds = 0.125};
  return p;
}

TEST(StepProfile, TheLongerOfFlopsAndBytesIsTheLimit) {
  const OperationLimit product = operation_limit("product, input gradient", {.flops = 50, .bytes = 4}, kLimits);
  EXPECT_EQ(product.seconds, 0.5);
  EXPECT_FALSE(product.by_memory);
  const OperationLimit attention = operation_limit("attention", {.flops = 50, .bytes = 4}, kLimits);
  EXPECT_EQ(attention.seconds, 0.4) << "other arithmetic can be faster than products are";
  EXPECT_TRUE(attention.by_memory);
  EXPECT_EQ(operation_limit("nothing", {.calls = 3, .seconds = 1}, kLimits).seconds, 0);
}

TEST(StepProfile, TheMedianStepIsOneOfThem) {
  const auto steps = [](const std::vector<double>& seconds) {
    std::vector<StepTimes> list;
    for (const double s : seconds) list.push_back({.seconds = s, .operations = {{"a", {.seconds = s / 2}}}});
    return list;
  };
  EXPECT_EQ(median_step(steps({4})).seconds, 4);
  EXPECT_EQ(median_step(steps({9, 1})).seconds, 1);
  const StepTimes median = median_step(steps({9, 1, 5, 2, 7}));
  EXPECT_EQ(median.seconds, 5);
  EXPECT_EQ(median.operations.at("a").seconds, 2.5);
  EXPECT_EQ(median.overhead_seconds(), 2.5);
}

TEST(StepProfile, JsonHasTheSlowestFirstAndWhatIsLeft) {
  const Json r = step_profile_json(known_profile());
  const Json& operations = r["operations"];
  ASSERT_EQ(operations.size(), 3U);
  EXPECT_EQ(operations[0]["name"], "adamw");
  EXPECT_EQ(operations[0]["share"], 0.5);
  EXPECT_EQ(operations[0]["limit_seconds"], 1.8);
  EXPECT_EQ(operations[0]["limited_by"], "memory");
  EXPECT_EQ(operations[0]["limit_fraction"], 1.2) << "what lies in caches is faster than memory";
  EXPECT_EQ(operations[1]["name"], "product");
  EXPECT_EQ(operations[1]["limited_by"], "flops");
  EXPECT_EQ(operations[1]["limit_fraction"], 0.8);
  EXPECT_TRUE(operations[2]["limited_by"].is_null());
  EXPECT_EQ(operations[2]["limit_fraction"], 0);
  EXPECT_EQ(r["overhead_seconds"], 0.125);
  EXPECT_EQ(r["tokens_per_second"], 200);
  EXPECT_DOUBLE_EQ(r["flops_per_second"].get<double>(), 60);
  EXPECT_DOUBLE_EQ(r["product_rate_share"].get<double>(), 0.6);
}

TEST(StepProfile, TextIsAsWideAsATerminal) {
  StepProfile p = known_profile();
  p.step.operations["column_scale backward"] = {.calls = 98'304'000, .seconds = 123.456, .flops = 1e15, .bytes = 1e13};
  p.step.seconds = 234.5;
  p.limits = {.bytes_per_second = 987.6e9, .flops_per_second = 12345e9, .product_flops_per_second = 11234e9};
  p.recomputed_flops_per_token = 1.23e9;
  p.threads = 128;
  std::istringstream lines(step_profile_text(p));
  std::string line, text;
  while (std::getline(lines, line)) {
    EXPECT_LE(line.size(), 80U) << line;
    text += line + "\n";
  }
  EXPECT_LT(text.find("column_scale backward"), text.find("adamw"));
  EXPECT_LT(text.find("idle"), text.find("overhead")) << "the rest comes last";
  EXPECT_NE(text.find("and 1.23G recomputed"), std::string::npos) << text;
}

/// Three steps of a model of one block on a few tokens.
struct SmallRun {
  testing::Scratch data;
  Config config{train_schema()};

  SmallRun() {
    testing::write_megatron(data, "train-00000", {{5, 6, 2, 7, 2, 8, 9, 10, 2, 3, 4, 5, 6}});
    for (const char* set :
         {"data.sequence_length=4", "model.vocab_size=12", "model.hidden_size=8", "model.intermediate_size=16",
          "model.num_hidden_layers=2", "model.num_attention_heads=1", "model.num_key_value_heads=1", "train.steps=2",
          "train.batch_sequences=2", "train.micro_batch_sequences=1", "optimizer.learning_rate=0.001"}) {
      config.apply_set(set);
    }
    config.apply_set("data.path=" + data.file("train-00000"));
  }
};

TEST(StepProfile, AStepsOperationsAddUp) {
  const SmallRun run;
  const RunSetup setup = prepare_run(run.config, "");
  Context ctx(2);
  const StepProfile p = profile_steps(ctx, setup, 3, no_progress());
  EXPECT_EQ(ctx.profile(), nullptr);
  EXPECT_EQ(p.steps, 3);
  EXPECT_EQ(p.tokens_per_step, 8);
  double product_flops = 0;
  for (const auto& [name, totals] : p.step.operations) {
    EXPECT_GT(totals.calls, 0) << name;
    EXPECT_GT(totals.seconds, 0) << name;
    if (name.starts_with("product")) product_flops += totals.flops;
  }
  EXPECT_EQ(product_flops, 6.0 * 8 * static_cast<double>(count_parameters(setup.settings.model).in_products));
  for (const char* name : {"attention", "attention backward", "seam", "cross_entropy", "adamw", "grad_norm"}) {
    EXPECT_TRUE(p.step.operations.contains(name)) << name;
  }
  EXPECT_EQ(p.step.operations.at("adamw").calls, 1);
  EXPECT_GE(p.step.overhead_seconds(), 0);
  EXPECT_LT(p.step.overhead_seconds(), p.step.seconds);
  EXPECT_GT(p.limits.bytes_per_second, 0);
  EXPECT_GT(p.limits.flops_per_second, 0);
  EXPECT_GT(p.limits.product_flops_per_second, 0);
  EXPECT_GE(p.memory.peak_resident_bytes, p.memory.anonymous_bytes);
}

TEST(StepProfile, RecomputationIsTimedAndNotCounted) {
  SmallRun run;
  const auto profile_of = [&](const std::string& mode) {
    run.config.apply_set("train.recompute=" + mode);
    const RunSetup setup = prepare_run(run.config, "");
    Context ctx(1);
    return profile_steps(ctx, setup, 1, no_progress());
  };
  const StepProfile plain = profile_of("none"), again = profile_of("block");
  EXPECT_EQ(plain.recomputed_flops_per_token, 0);
  EXPECT_GT(again.recomputed_flops_per_token, 0);
  EXPECT_EQ(plain.flops_per_token, again.flops_per_token);
  EXPECT_GT(again.step.operations.at("product").flops, plain.step.operations.at("product").flops);
}

}  // namespace
}  // namespace keel
