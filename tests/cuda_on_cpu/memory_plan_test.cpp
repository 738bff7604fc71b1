// What runs take of a GPU is planned: to the byte what the emulated runtime is asked for.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "emulation.h"
#include "keel/base/error.h"
#include "keel/inference/inference_model.h"
#include "keel/inference/packed_weights.h"
#include "keel/kernels/common/context.h"
#include "keel/model/kv_cache.h"
#include "keel/model/residual_wiring.h"
#include "keel/train/run_setup.h"
#include "keel/train/training_run.h"
#include "support/errors.h"
#include "support/model_files.h"
#include "support/shards.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

const DeviceChoice kEmulated{Device::cuda, CudaBackend::emulated};

int64_t allocated_bytes() {
  return reinterpret_cast<int64_t (*)()>(detail::cuda_symbol("cuda_on_cpu_allocated_bytes"))();
}

int64_t planned_bytes(const ArenaPlan& plan) {
  return plan.total_bytes() + plan.beside().total_bytes();
}

class TrainingPlan : public ::testing::Test {
 protected:
  TrainingPlan() {
    std::vector<uint16_t> tokens(3000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * 7 % 61);
    testing::write_megatron(data_, "data", {tokens});
  }

  /// A small run with these lines of its config on top.
  RunSetup setup_of(const std::vector<std::string>& lines) const {
    Config config(train_schema());
    const auto set = [&](const std::string& line) { config.apply_set(line); };
    for (const char* line :
         {"model.vocab_size=67", "model.hidden_size=20", "model.intermediate_size=28", "model.num_hidden_layers=2",
          "model.num_attention_heads=2", "model.num_key_value_heads=1", "model.head_dim=10", "data.sequence_length=17",
          "train.steps=10", "train.batch_sequences=2", "train.micro_batch_sequences=1",
          "optimizer.learning_rate=0.01"}) {
      set(line);
    }
    set("data.path=" + data_.file("data"));
    for (const std::string& line : lines) set(line);
    return prepare_run(config, "");
  }

  /// After a step, a profiled one where the run has these, what is kept is what was planned.
  void expect_as_planned(const std::vector<std::string>& lines) const {
    std::string name;
    for (const std::string& line : lines) name += line + " ";
    SCOPED_TRACE(name);
    const RunSetup setup = setup_of(lines);
    Context ctx(kEmulated, 1);
    const int64_t before = allocated_bytes();
    const std::unique_ptr<Trainer> trainer = make_trainer(ctx, setup, nullptr);
    ASSERT_TRUE(trainer->step(0, {.profile = setup.settings.profile_every > 0}));
    EXPECT_EQ(allocated_bytes() - before, planned_bytes(trainer->memory().arena));
  }

  testing::Scratch data_;
};

TEST_F(TrainingPlan, IsToTheByteForEveryScheme) {
  for (const ResidualScheme& scheme : residual_schemes()) {
    const std::string name = "model.residual_scheme=" + std::string(scheme.name);
    expect_as_planned({name});
    if (scheme.name != "rezero") expect_as_planned({name, "model.norm_type=ln"});
  }
}

TEST_F(TrainingPlan, IsToTheByteWhateverARunKeeps) {
  expect_as_planned({"train.profile_every=1"});
  expect_as_planned({"train.activations=bf16"});
  expect_as_planned({"train.activations=bf16", "model.intermediate_size=4"});
  expect_as_planned({"train.recompute=branch"});
  expect_as_planned({"train.recompute=every:3", "data.document_mask=true"});
  expect_as_planned({"model.tie_word_embeddings=true", "model.vocab_size=9000", "model.hidden_size=64"});
  expect_as_planned({"model.attention_bias=true", "model.mlp_bias=true", "model.residual_scheme=rezero"});
  expect_as_planned({"model.head_dim=260"});
  expect_as_planned({"train.precision=bf16"});
  expect_as_planned({"train.precision=bf16", "model.attention_bias=true", "model.mlp_bias=true"});
  expect_as_planned({"train.precision=bf16", "model.qkv_bias=true", "model.hidden_size=64"});
  expect_as_planned({"model.qk_norm=true", "model.learnable_alpha=true"});
  expect_as_planned({"data.sequence_length=300", "train.micro_batch_sequences=2"});
}

/// Generation between steps takes what it needs, and the plan has room for all that it may be handed.
TEST_F(TrainingPlan, HasRoomForSamples) {
  RunSetup setup = setup_of({"data.sequence_length=40"});
  SampleSettings& sample = setup.settings.validate.sample;
  sample.prompt_ids = {{1, 2, 3}, std::vector<int32_t>(30, 5), {4}};
  sample.tokens = 9;
  Context ctx(kEmulated, 1);
  const int64_t before = allocated_bytes();
  const std::unique_ptr<Trainer> trainer = make_trainer(ctx, setup, nullptr);
  ASSERT_TRUE(trainer->step(0));
  ASSERT_TRUE(trainer->sample(1));
  const ArenaPlan& plan = trainer->memory().arena;
  const int64_t taken = allocated_bytes() - before;
  EXPECT_LE(taken, planned_bytes(plan));
  const OperationMemory& beside = plan.beside();
  EXPECT_GE(taken,
            planned_bytes(plan) - beside.bytes(OperationMemory::batches) - beside.bytes(OperationMemory::scratch));
}

/// A model in a folder, and the largest batch that its options allow: sequences of which the first fills its pages, all
/// rows scored.
struct Inference {
  static constexpr int64_t kTokens = 24, kPositions = 300, kSequences = 3, kPageSize = 8;
  testing::TempDir folder;
  DecoderOptions options{.max_tokens = kTokens,
                         .max_positions = kPositions,
                         .max_sequences = kSequences,
                         .cache_pages = 200,
                         .page_size = kPageSize,
                         .logit_rows = kTokens};
  KvPages pages{options.cache_pages, kPageSize};
  CachedBatch batch;

  explicit Inference(int64_t head_dim) {
    testing::write_model_folder(folder.path().string(),
                                resolved({.vocab_size = 23,
                                          .hidden_size = 16,
                                          .intermediate_size = 24,
                                          .num_hidden_layers = 1,
                                          .num_attention_heads = 2,
                                          .num_key_value_heads = 1,
                                          .head_dim = head_dim,
                                          .residual_scheme = "keel"}),
                                1);
  }

  void run(InferenceModel& model) {
    const std::vector<int32_t> tokens(kTokens, 7);
    const int64_t first = pages.create();
    for (int64_t at = 0; at < kPositions - kTokens / kSequences; at += kTokens) {
      batch.clear();
      const int64_t count = std::min(kTokens, kPositions - kTokens / kSequences - at);
      ASSERT_TRUE(batch.add(pages, first, std::span(tokens).first(static_cast<size_t>(count))));
      ASSERT_TRUE(model.forward(batch.host()));
    }
    batch.clear();
    const auto part = std::span(tokens).first(kTokens / kSequences);
    for (const int64_t sequence : {first, pages.create(), pages.create()}) {
      ASSERT_TRUE(batch.add(pages, sequence, part));
    }
    const std::vector<float> weights(kTokens, 1);
    HostBatch whole = batch.host();
    whole.targets = {tokens.data(), {kTokens}};
    whole.weights = {weights.data(), {kTokens}};
    ASSERT_TRUE(model.forward(whole));
    StepScalars scalars{};
    model.loss(scalars);
    std::vector<int32_t> rows(kTokens), argmax(kTokens);
    std::vector<float> nll(kTokens), logits(kTokens * model.config().vocab_size);
    model.score({rows.data(), {kTokens}}, whole.targets, whole.weights, {nll.data(), {kTokens}},
                {argmax.data(), {kTokens}});
    model.logits({rows.data(), {kTokens}}, {logits.data(), {kTokens, model.config().vocab_size}});
    for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
  }
};

TEST(InferencePlan, IsToTheByte) {
  for (const WeightType type : {WeightType::fp32, WeightType::bf16, WeightType::q8_0}) {
    for (const int64_t head_dim : {8, 260}) {
      SCOPED_TRACE(std::string(to_string(type)) + ", heads of " + std::to_string(head_dim));
      Inference inference(head_dim);
      Context ctx(kEmulated, 1);
      const int64_t before = allocated_bytes();
      InferenceModel model(ctx, open_model_folder(inference.folder.path().string()), inference.options, {}, type);
      inference.run(model);
      EXPECT_EQ(allocated_bytes() - before, planned_bytes(*model.memory()));
    }
  }
}

TEST(InferencePlan, OfMoreThanThereIsIsRefusedAtOnce) {
  Inference inference(8);
  inference.options.cache_pages = int64_t{1} << 24;
  Context ctx(kEmulated, 1);
  const int64_t before = allocated_bytes();
  testing::expect_error(ErrorKind::memory, "of the GPU's memory", [&] {
    InferenceModel(ctx, open_model_folder(inference.folder.path().string()), inference.options);
  });
  EXPECT_EQ(allocated_bytes(), before);
}

}  // namespace
}  // namespace keel
