#include "keel/train/settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "keel/base/error.h"
#include "keel/model/flops.h"
#include "keel/model/residual_wiring.h"
#include "keel/train/train_memory.h"

namespace keel {
namespace {

constexpr const char* kSmall = R"({
  "model": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50},
  "data": {"sequence_length": 8},
  "train": {"steps": 10, "batch_sequences": 12},
  "optimizer": {"learning_rate": 0.01}
})";

Config small_config() {
  Config config(train_schema());
  config.apply(JsonDocument(kSmall, "small.json", ErrorKind::config), ConfigLayer::file);
  return config;
}

Config with(std::initializer_list<const char*> assignments) {
  Config config = small_config();
  for (const char* assignment : assignments) config.apply_set(assignment);
  return config;
}

void expect_refused(const Config& config, const std::string& part, const TrainFacts& facts = {}) {
  try {
    resolve_settings(config, facts);
    ADD_FAILURE() << "accepted; expected an error with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), kExitUsage) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Settings, DefaultsAreTheOnesOfTheContract) {
  const TrainSettings s = resolve_settings(small_config(), {});
  EXPECT_EQ(s.model.residual_scheme, "keel");
  EXPECT_EQ(s.model.rms_norm_eps, 1e-5);
  EXPECT_EQ(s.model.rope_theta, 1e4);
  EXPECT_EQ(s.model.initializer_range, 0.02);
  EXPECT_EQ(s.model.head_dim, 8);
  EXPECT_EQ(s.model.num_key_value_heads, 2);
  EXPECT_EQ(s.model.max_position_embeddings, 8);
  EXPECT_EQ(s.optimizer.beta1, 0.9);
  EXPECT_EQ(s.optimizer.beta2, 0.95);
  EXPECT_EQ(s.optimizer.clip, 1);
  EXPECT_FALSE(s.optimizer.decay_all);
  EXPECT_EQ(s.optimizer.classes[0].weight_decay, 0.01);
  EXPECT_EQ(s.optimizer.classes[0].eps, 1e-8);
  EXPECT_EQ(s.schedule.name, ScheduleName::cosine);
  EXPECT_EQ(s.schedule.warmup_steps, 0);
  EXPECT_EQ(s.log_every, 1);
  EXPECT_TRUE(s.data.shuffle);
}

TEST(Settings, OneLengthAndOneBatchSize) {
  expect_refused(with({"train.tokens=1000"}), "both given");
  expect_refused(with({"train.batch_tokens=96"}), "both given");
  Config no_length(train_schema());
  no_length.apply(
      JsonDocument(R"({"model":{"hidden_size":16,"intermediate_size":32,"num_hidden_layers":2,"num_attention_heads":2,
      "vocab_size":50},"data":{"sequence_length":8},"train":{"batch_tokens":20},"optimizer":{"learning_rate":1}})",
                   "x", ErrorKind::config),
      ConfigLayer::file);
  expect_refused(no_length, "no multiple of data.sequence_length 8");
  no_length.apply_set("train.batch_tokens=24");
  expect_refused(no_length, "train.steps must be given");
  no_length.apply_set("train.tokens=25");
  EXPECT_EQ(resolve_settings(no_length, {}).steps, 2);
  EXPECT_EQ(resolve_settings(no_length, {}).batch_sequences, 3);
}

TEST(Settings, LengthsThatFollowFromTheModel) {
  Config config = with({"train.steps=null", "train.tokens_per_parameter=2"});
  TrainSettings s = resolve_settings(config, {});
  const auto parameters = static_cast<double>(count_parameters(s.model).total);
  EXPECT_EQ(s.steps, static_cast<int64_t>(std::ceil(2 * parameters / 96)));
  config = with({"train.steps=null", "train.flops=1e9"});
  s = resolve_settings(config, {});
  EXPECT_EQ(s.steps, static_cast<int64_t>(std::ceil(1e9 / train_flops_per_token(s.model, 8) / 96)));
}

TEST(Settings, MicroBatchMustDivideTheBatch) {
  expect_refused(with({"train.micro_batch_sequences=5"}), "12 sequences is no multiple of a micro-batch of 5");
  EXPECT_EQ(resolve_settings(with({"train.micro_batch_sequences=4"}), {}).micro_batch_sequences, 4);
}

TEST(Settings, SizesThatCannotBeCountedAreRefused) {
  expect_refused(with({"train.batch_sequences=9000000000000000"}), "sequences a step");
  expect_refused(with({"train.steps=9000000000000000"}), "steps of 96 tokens");
  expect_refused(with({"train.batch_sequences=1000000000", "train.micro_batch_sequences=1000000000"}),
                 "sequences a micro-batch");
  expect_refused(with({"model.num_hidden_layers=30000000"}), "num_hidden_layers must be given, from 1 to 100000");
  expect_refused(with({"model.num_attention_heads=10000", "model.head_dim=10000"}), "num_attention_heads * head_dim");
}

TEST(Settings, ContradictionsAreRefused) {
  expect_refused(with({"model.num_key_value_heads=3"}), "no multiple of num_key_value_heads 3");
  expect_refused(with({"model.num_attention_heads=3"}), "no multiple of num_attention_heads 3");
  expect_refused(with({"model.head_dim=7"}), "odd");
  expect_refused(with({"model.residual_scheme=pre", "model.residual_alpha=4"}), "has no meaning in scheme 'pre'");
  expect_refused(with({"model.max_position_embeddings=4"}), "above model.max_position_embeddings 4");
  expect_refused(with({"optimizer.betas=[0.9, 1.0]"}), "optimizer.betas");
  expect_refused(with({"optimizer.betas=[0.9]"}), "optimizer.betas");
  expect_refused(small_config(), "smaller than the tokenizer's 60", {.data_vocab_size = 60});
}

TEST(Settings, NumbersThatVanishOrOverflowInSinglePrecisionAreRefused) {
  expect_refused(with({"optimizer.eps=1e-320"}), "optimizer.eps 1e-320 is 0 as a 32-bit number");
  expect_refused(with({"optimizer.weight_decay=1e300"}), "optimizer.weight_decay 1e+300 is infinite");
  expect_refused(with({"optimizer.learning_rate=1e39"}), "infinite");
  expect_refused(with({"optimizer.learning_rate=1e-60"}), "is 0");
  expect_refused(with({"optimizer.clip=1e39"}), "infinite");
  expect_refused(with({"schedule.final_learning_rate=1e-60"}), "is 0");
  for (const char* key : {"learning_rate", "weight_decay", "eps"}) {
    expect_refused(with({("optimizer.classes.norm." + std::string(key) + "=1e40").c_str()}), "infinite");
  }
  for (const char* key : {"rms_norm_eps", "rope_theta", "residual_alpha"}) {
    expect_refused(with({("model." + std::string(key) + "=1e-50").c_str()}), "is 0");
  }
  EXPECT_EQ(
      resolve_settings(with({"optimizer.learning_rate=0", "optimizer.weight_decay=0"}), {}).optimizer.learning_rate, 0);
}

TEST(Settings, VocabularyComesFromTheDataWhenAbsent) {
  EXPECT_EQ(resolve_settings(with({"model.vocab_size=null"}), {.data_vocab_size = 60}).model.vocab_size, 60);
  EXPECT_EQ(resolve_settings(small_config(), {.data_vocab_size = 40}).model.vocab_size, 50);
  expect_refused(with({"model.vocab_size=null"}), "model.vocab_size must be given");
}

TEST(Settings, ModelGroupThatContradictsInitIsRefused) {
  const ModelConfig init = resolved({.vocab_size = 50,
                                     .hidden_size = 16,
                                     .intermediate_size = 32,
                                     .num_hidden_layers = 2,
                                     .num_attention_heads = 2,
                                     .residual_scheme = "pre"});
  expect_refused(with({"model.residual_scheme=keel"}), "contradicts the pre of the model it starts from",
                 {.init_model = init});
  EXPECT_EQ(resolve_settings(small_config(), {.init_model = init}).model.residual_scheme, "pre");
  expect_refused(with({"model.hidden_size=32"}), "hidden_size 32 contradicts the 16 of the model it starts from",
                 {.init_model = init});
  EXPECT_THROW(resolve_settings(with({"model.norm_type=ln"}), {.init_model = init}), Error);
  EXPECT_EQ(resolve_settings(with({"model.norm_type=rms"}), {.init_model = init}).model.norm_type, init.norm_type);
  try {
    resolve_settings(with({"model.residual_scheme=keel"}), {.init_model = init, .resumed = true});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format) << error.what();
  }
}

TEST(Settings, ClassesHaveTheirOwnRatesInTheSameShape) {
  const TrainSettings s =
      resolve_settings(with({"optimizer.classes.norm.learning_rate=0.02", "optimizer.classes.norm.weight_decay=0.5",
                             "schedule.final_learning_rate=0.001"}),
                       {});
  const ClassSettings& norm = s.optimizer.classes[static_cast<int>(ParameterClass::norm)];
  const ClassSettings& mlp = s.optimizer.classes[static_cast<int>(ParameterClass::mlp)];
  EXPECT_EQ(norm.learning_rate, 0.02);
  EXPECT_NEAR(norm.final_learning_rate, 0.002, 1e-18);
  EXPECT_EQ(norm.weight_decay, 0.5);
  EXPECT_EQ(mlp.learning_rate, 0.01);
  EXPECT_EQ(mlp.final_learning_rate, 0.001);
}

TEST(Settings, ClipOffIsInfinite) {
  EXPECT_TRUE(std::isinf(resolve_settings(with({"optimizer.clip=off"}), {}).optimizer.clip));
  EXPECT_TRUE(std::isinf(resolve_settings(with({"optimizer.clip=0"}), {}).optimizer.clip));
  EXPECT_EQ(resolve_settings(with({"optimizer.clip=null"}), {}).optimizer.clip, 1);
}

/// Where an outer norm or a scale stands over the skip, most of what a sublayer adds is below bf16's last place.
TEST(Settings, StreamsInBf16AreRefusedByTheSchemesName) {
  for (const ResidualScheme& scheme : residual_schemes()) {
    const std::string name(scheme.name), chosen = "model.residual_scheme=" + name;
    bool is_like_post_ln = false;
    for (int64_t l = 0; l < 8; ++l) is_like_post_ln = is_like_post_ln || scheme.row(l, 4, {}).outer != NormKind::none;
    expect_refused(
        with({chosen.c_str(), "train.stream_dtype=bf16"}),
        is_like_post_ln ? "train.stream_dtype bf16 with scheme '" + name + "'" : "train.stream_dtype bf16 is");
    EXPECT_NO_THROW(resolve_settings(with({chosen.c_str(), "train.stream_dtype=fp32"}), {})) << name;
  }
}

TEST(Settings, ActivationsInBf16ThatTakeLess) {
  const TrainSettings plain = resolve_settings(small_config(), {});
  EXPECT_EQ(plain.activations, ElementType::fp32);
  const TrainSettings rounded = resolve_settings(with({"train.activations=bf16"}), {});
  EXPECT_EQ(rounded.activations, ElementType::bf16);
  EXPECT_LT(plan_training(rounded, 12).arena.bytes(MemoryKind::activations),
            plan_training(plain, 12).arena.bytes(MemoryKind::activations) * 3 / 4);
}

TEST(TrainMemory, AutomaticMicroBatchDividesTheBatchAndKeepsToTheLimit) {
  TrainSettings s = resolve_settings(small_config(), {});
  EXPECT_EQ(automatic_micro_batch(s), 12);
  const int64_t whole = plan_training(s, 12).arena.total_bytes();
  const int64_t half = plan_training(s, 6).arena.total_bytes();
  ASSERT_LT(half, whole);
  s.memory_limit_bytes = whole - 1 + (int64_t{64} << 20);
  EXPECT_EQ(automatic_micro_batch(s), 6);
  s.memory_limit_bytes = 1000;
  EXPECT_EQ(automatic_micro_batch(s), 1) << "whether that fits is for the estimate to say";
  s.memory_limit_bytes = 0;
  s.data.sequence_length = s.model.max_position_embeddings = 1024;
  EXPECT_EQ(automatic_micro_batch(s), 4) << "about 4096 tokens at a time";
}

TEST(TrainMemory, KindsAddUpToTheArena) {
  const TrainSettings s = resolve_settings(small_config(), {});
  const TrainMemory m = plan_training(s, 12);
  int64_t sum = 0;
  for (int kind = 0; kind < kMemoryKinds; ++kind) sum += m.arena.bytes(static_cast<MemoryKind>(kind));
  EXPECT_EQ(sum, m.arena.total_bytes());
  EXPECT_EQ(m.arena.bytes(MemoryKind::optimizer), 2 * ((m.layout.size * 4 + 63) / 64 * 64));
}

}  // namespace
}  // namespace keel
