#include "keel/train/train_samples.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/hash.h"
#include "keel/checkpoint/checkpoint.h"
#include "keel/train/train_command.h"
#include "keel/train/training_run.h"
#include "support/errors.h"
#include "support/keel_folder.h"
#include "support/test_device.h"

namespace keel {
namespace {

/// Every text is the same tokens; `fails` where text should come of tokens.
struct FixedCodec final : TextCodec {
  std::vector<int32_t> ids;
  bool fails = false;

  explicit FixedCodec(std::vector<int32_t> prompt, bool text_fails = false)
      : ids(std::move(prompt)), fails(text_fails) {}
  std::vector<int32_t> encode_prompt(const std::string& /*text*/) const override { return ids; }
  std::string continuation(std::span<const int32_t> /*prompt*/, std::span<const int32_t> tokens) const override {
    if (fails) throw Error(ErrorKind::config, "no text comes of this");
    return std::string(tokens.size(), 'x');
  }
  std::vector<int32_t> stop_ids() const override { return {2}; }
  int64_t vocab_size() const override { return 330; }
};

/// Three small steps on data with a tokenizer of 330 tokens; with prompts, samples after the second.
struct SmallRun {
  testing::Scratch data, runs;
  Context ctx = testing::test_context(1);

  SmallRun() {
    testing::write_megatron(data, "train-00000", {{5, 6, 2}, {7, 2}, {8, 9, 10, 2}});
    data.write("m.model", "tokenizer");
    data.write("manifest.json", R"({"schema": "keel.tokens/1", "tokenizer": {"file": "m.model", "sha256": ")" +
                                    sha256_hex("tokenizer") + R"(", "vocab_size": 330, "eod_id": 2}, "shards": [)" +
                                    testing::shard_entry(data, "train-00000", 9, 3) + "]}");
  }

  void configure(Config& config) const {
    for (const char* set :
         {"data.sequence_length=4", "model.hidden_size=8", "model.intermediate_size=8", "model.num_hidden_layers=1",
          "model.num_attention_heads=1", "model.num_key_value_heads=1", "train.steps=3", "train.batch_sequences=1",
          "optimizer.learning_rate=0.001", "validate.sample.every_steps=2", "validate.sample.tokens=2"}) {
      config.apply_set(set);
    }
    config.apply_set("data.path=" + data.path().string());
  }

  TrainResult train(const FixedCodec& codec) {
    const auto with_prompts = [&](Config& config) {
      configure(config);
      config.apply_set(R"(validate.sample.prompts=["a"])");
    };
    const auto open = [&](const std::string&) { return std::make_shared<FixedCodec>(codec); };
    return keel::train(ctx, {.configure = with_prompts, .out = runs.file("run"), .open_codec = open}, no_progress());
  }
};

TEST(TrainSamples, PromptsThatCannotBeContinuedAreRefusedBeforeTraining) {
  SmallRun run;
  const auto refused = [&](std::vector<int32_t> ids, const std::string& problem) {
    testing::expect_error(ErrorKind::config, "prompt 1 of validate.sample.prompts: " + problem,
                          [&] { run.train(FixedCodec(std::move(ids))); });
  };
  refused({}, "no tokens to start from");
  refused({1, 330}, "token id 330 is outside the model's vocabulary of 330");
  refused({-1}, "token id -1 is outside");
  refused({1, 2, 3, 4}, "4 tokens leave no room in a context of 4");
  EXPECT_FALSE(std::filesystem::exists(run.runs.file("run")));
  EXPECT_EQ(run.train(FixedCodec({1, 329})).exit_code, 0);
}

TEST(TrainSamples, AnErrorInThemCostsNoSteps) {
  SmallRun run;
  KEEL_EXPECT_ERROR(run.train(FixedCodec({1}, true)), ErrorKind::config, "no text comes of this");
  const NewestCheckpoint newest = newest_checkpoint(run.runs.file("run"));
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(newest.checkpoint->step, 2);
}

TEST(TrainSamples, WithoutPromptsThereAreNone) {
  SmallRun run;
  Config config(train_schema());
  run.configure(config);
  const RunSetup setup = prepare_run(config, "");
  const auto trainer = make_trainer(run.ctx, setup, nullptr);
  testing::expect_error(ErrorKind::internal, "validate.sample.prompts", [&] { (void)trainer->sample(0); });
}

}  // namespace
}  // namespace keel
