// Training steps by their parts: on the CPU, and on the emulated device with streams that run at once and as late as they may.

#include "keel/train/trainer.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "backend_test_support.h"
#include "support/errors.h"
#include "support/shards.h"

namespace keel {
namespace {

TrainSettings small_settings() {
  TrainSettings s;
  s.model = resolved({.vocab_size = 61,
                      .hidden_size = 16,
                      .intermediate_size = 24,
                      .num_hidden_layers = 2,
                      .num_attention_heads = 2,
                      .num_key_value_heads = 1,
                      .max_position_embeddings = 8});
  s.data = {.sequence_length = 8, .shuffle = false, .vocab_size = 61};
  s.batch_sequences = 4;
  s.micro_batch_sequences = 2;
  s.steps = s.schedule.steps = 8;
  s.profile_every = 1;
  s.optimizer.learning_rate = 1e-2;
  s.optimizer.clip = 1;
  for (ClassSettings& own : s.optimizer.classes) own = {.learning_rate = 1e-2, .weight_decay = 0.1, .eps = 1e-8};
  s.validate.tokens = 16;
  return s;
}

enum class Where { cpu, device, lazy_device };

class TrainerTest : public ::testing::TestWithParam<Where> {
 protected:
  TrainerTest() {
    std::vector<uint16_t> tokens;
    for (uint64_t i = 0; i < 400; ++i) tokens.push_back(static_cast<uint16_t>((7 * i + i * i % 11) % 61));
    testing::write_megatron(folder_, "data", {tokens});
    const TokenStream stream = *open_token_data(folder_.file("data")).train;
    reader_.emplace(stream, settings_.data);
    if (GetParam() == Where::cpu) {
      ctx_.emplace(1);
      return;
    }
    ctx_.emplace(testing::kEmulated, 1);
    if (GetParam() == Where::lazy_device) lazy_.emplace();
  }

  std::unique_ptr<Trainer> trainer(std::function<bool()> interrupted = {}) {
    auto made = std::make_unique<Trainer>(*ctx_, settings_, *reader_, &*reader_, std::move(interrupted));
    made->initialise();
    return made;
  }

  /// Weights and optimiser state by name, bit by bit.
  static std::map<std::string, std::string> state(const Trainer& trainer) {
    std::map<std::string, std::string> found;
    for (const auto& tensors : {trainer.weight_tensors(), trainer.optimizer_tensors()}) {
      for (const TensorSource& tensor : tensors) {
        int64_t bytes = sizeof(float);
        for (const int64_t extent : tensor.shape) bytes *= extent;
        std::string& values = found[tensor.name];
        values.resize(bytes);
        const std::span out(reinterpret_cast<std::byte*>(values.data()), values.size());
        if (tensor.produce) tensor.produce(0, out);
        for (const auto part : tensor.parts) std::ranges::copy(part, out.begin());
      }
    }
    return found;
  }

  struct Numbers {
    double loss, grad_norm;
    bool operator==(const Numbers&) const = default;
  };
  static Numbers numbers(const StepResult& result) {
    EXPECT_GE(result.seconds, 0);
    EXPECT_LT(result.seconds, 60);
    return {result.loss, result.grad_norm};
  }

  TrainSettings settings_ = small_settings();
  testing::Scratch folder_;
  std::optional<BatchReader> reader_;
  std::optional<Context> ctx_;
  std::optional<testing::LazyStreams> lazy_;
};
const char* name_of(Where where) {
  return where == Where::cpu ? "cpu" : where == Where::device ? "device" : "lazy_device";
}
INSTANTIATE_TEST_SUITE_P(, TrainerTest, ::testing::Values(Where::cpu, Where::device, Where::lazy_device),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(TrainerTest, StepsThatAreBegunEarlyAreTheSame) {
  const auto overlapped = trainer();
  EXPECT_EQ(overlapped->runs_behind(), GetParam() != Where::cpu);
  std::vector<Numbers> found, expected;
  ASSERT_TRUE(overlapped->begin(0));
  for (int64_t t = 0; t < 5; ++t) {
    ASSERT_TRUE(overlapped->finish());
    ASSERT_TRUE(overlapped->begin(t + 1));
    found.push_back(numbers(overlapped->collect()));
  }
  const auto one_by_one = trainer();
  for (int64_t t = 0; t < 5; ++t) expected.push_back(numbers(*one_by_one->step(t)));
  EXPECT_EQ(found, expected);
  EXPECT_EQ(state(*overlapped), state(*one_by_one)) << "the sixth is begun, and has changed nothing";
}

TEST_P(TrainerTest, StepsAreTheSameRecordedAndNot) {
  const auto run = [&] {
    const auto made = trainer();
    std::vector<Numbers> all;
    for (int64_t t = 0; t < 4; ++t) all.push_back(numbers(*made->step(t)));
    return std::pair{all, state(*made)};
  };
  const auto launches = [&] { return GetParam() == Where::cpu ? 0 : testing::graph_launches(); };
  const uint64_t before = launches();
  const auto recorded = run();
  const uint64_t between = launches();
  setenv("KEEL_CUDA_GRAPH", "0", 1);
  const auto plain = run();
  unsetenv("KEEL_CUDA_GRAPH");
  EXPECT_EQ(recorded, plain);
  EXPECT_EQ(between - before, GetParam() == Where::cpu ? 0 : 6U) << "all but the first micro-batch of each kind";
  EXPECT_EQ(launches(), between);
}

TEST_P(TrainerTest, WhatWasBegunIsGivenUp) {
  const auto plain = trainer(), other = trainer();
  const std::optional<double> loss = plain->validate();
  const Numbers first = numbers(*plain->step(0)), second = numbers(*plain->step(1));
  ASSERT_TRUE(other->begin(3));
  EXPECT_EQ(other->validate(), loss);
  testing::expect_error(ErrorKind::internal, "no step is begun", [&] { other->finish(); });
  ASSERT_TRUE(other->begin(3));
  EXPECT_EQ(numbers(*other->step(0)), first);
  ASSERT_TRUE(other->begin(7));
  ASSERT_TRUE(other->begin(1));
  ASSERT_TRUE(other->finish());
  EXPECT_EQ(numbers(other->collect()), second);
  EXPECT_EQ(state(*other), state(*plain));
}

TEST_P(TrainerTest, ProfilesBesideStepsThatAreBegun) {
  const auto plain = trainer(), other = trainer();
  plain->step(0);
  const std::optional<StepResult> profiled = plain->step(1, {.profile = true});
  ASSERT_TRUE(other->begin(0));
  ASSERT_TRUE(other->finish());
  ASSERT_TRUE(other->begin(1, {.profile = true}));
  other->collect();
  ASSERT_TRUE(other->finish());
  ASSERT_TRUE(other->begin(2));
  const StepResult result = other->collect();
  ASSERT_TRUE(result.profile && profiled->profile);
  EXPECT_EQ(result.profile->final_stream_rms, profiled->profile->final_stream_rms);
  EXPECT_EQ(result.profile->sublayers[0].branch_rms, profiled->profile->sublayers[0].branch_rms);
}

TEST_P(TrainerTest, PartsOutOfOrder) {
  const auto made = trainer();
  testing::expect_error(ErrorKind::internal, "no step is begun", [&] { made->finish(); });
  testing::expect_error(ErrorKind::internal, "no step is finished", [&] { made->collect(); });
  ASSERT_TRUE(made->begin(0, {.profile = true}));
  ASSERT_TRUE(made->finish());
  testing::expect_error(ErrorKind::internal, "a profile of a step", [&] { made->begin(1, {.profile = true}); });
  testing::expect_error(ErrorKind::internal, "before the last step was collected", [&] { made->validate(); });
  ASSERT_TRUE(made->begin(1));
  testing::expect_error(ErrorKind::internal, "the last one not collected", [&] { made->finish(); });
  made->collect();
}

TEST_P(TrainerTest, AnInterruptedStepChangesNothing) {
  bool stop = false;
  const auto made = trainer([&] { return stop; });
  const auto before = state(*made);
  for (const bool in_first : {true, false}) {
    stop = in_first;
    ASSERT_NE(made->begin(0), in_first);
    stop = true;
    if (!in_first) {
      EXPECT_FALSE(made->finish());
    }
    EXPECT_EQ(state(*made), before);
  }
  stop = false;
  EXPECT_TRUE(made->step(0).has_value());
}

}  // namespace
}  // namespace keel
