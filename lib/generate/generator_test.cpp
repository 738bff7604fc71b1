#include "keel/generate/generator.h"

#include <gtest/gtest.h>

#include <map>

#include "keel/base/atomic_file.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/signals.h"
#include "support/errors.h"
#include "support/model_files.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace keel {
namespace {

struct Result {
  std::vector<int32_t> tokens;
  std::optional<FinishReason> reason;
  bool operator==(const Result&) const = default;
};

class GeneratorTest : public ::testing::Test {
 protected:
  GeneratorTest() { testing::write_small_model(folder_.path().string()); }

  std::vector<Result> run(const std::vector<GenerationRequest>& requests, int64_t batch_sequences, int64_t max_tokens,
                          int64_t context = 0, const std::function<bool(int64_t, int32_t)>& also = {}) {
    const GeneratorSizes sizes = generator_sizes(requests, context, batch_sequences, max_tokens);
    InferenceModel model(ctx_, open_model_folder(folder_.path().string()), sizes.decoder_options());
    std::vector<Result> results(requests.size());
    Generator(model, sizes)
        .run(requests, {.on_token =
                            [&](int64_t request, int32_t id) {
                              results[request].tokens.push_back(id);
                              return !also || also(request, id);
                            },
                        .on_finish =
                            [&](int64_t request, FinishReason reason) {
                              EXPECT_FALSE(results[request].reason);
                              results[request].reason = reason;
                            }});
    return results;
  }

  testing::TempDir folder_;
  Context ctx_ = testing::test_context(2);
};

std::vector<GenerationRequest> some_requests(double temperature) {
  testing::Random random(3);
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 7; ++i) {
    GenerationRequest request{.max_tokens = 5 + static_cast<int64_t>(i) * 3,
                              .sampling = {.temperature = temperature},
                              .seed = 11,
                              .stream = i};
    const int64_t length = random.integer(1, 30);
    for (int64_t t = 0; t < length; ++t) request.prompt.push_back(static_cast<int32_t>(random.integer(0, 22)));
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_F(GeneratorTest, WhatRunsBesideARequestDoesNotChangeIt) {
  for (double temperature : {0.0, 1.0}) {
    const auto requests = some_requests(temperature);
    std::vector<Result> alone;
    for (const GenerationRequest& request : requests) alone.push_back(run({request}, 1, 100)[0]);
    for (const Result& result : alone) EXPECT_EQ(result.reason, FinishReason::max_tokens);
    EXPECT_EQ(run(requests, 7, 1000), alone) << "all at once";
    EXPECT_EQ(run(requests, 3, 8), alone) << "prompts in pieces, places taken again";
    EXPECT_EQ(run(requests, 1, 1), alone) << "token by token";
  }
}

TEST_F(GeneratorTest, StreamsDiffer) {
  auto requests = some_requests(1);
  requests.resize(2);
  requests[1] = requests[0];
  EXPECT_EQ(run(requests, 2, 50)[0], run(requests, 2, 50)[1]);
  requests[1].stream = 1;
  const auto results = run(requests, 2, 50);
  EXPECT_NE(results[0], results[1]);
}

TEST_F(GeneratorTest, EveryReasonToFinish) {
  GenerationRequest request{.prompt = {1, 2, 3}, .max_tokens = 20, .sampling = {.temperature = 0}};
  const Result whole = run({request}, 1, 50)[0];
  ASSERT_EQ(whole.tokens.size(), 20U);
  EXPECT_EQ(whole.reason, FinishReason::max_tokens);

  const Result context = run({request}, 1, 50, 9)[0];
  EXPECT_EQ(context.reason, FinishReason::context);
  EXPECT_EQ(context.tokens, std::vector<int32_t>(whole.tokens.begin(), whole.tokens.begin() + 7))
      << "the last one is never fed back, so it needs no position";

  const Result stopped = run({request}, 1, 50, 0, [](int64_t, int32_t) { return false; })[0];
  EXPECT_EQ(stopped.reason, FinishReason::stopped);
  EXPECT_EQ(stopped.tokens.size(), 1U);

  request.stop_ids = {whole.tokens[4]};
  const Result stop_id = run({request}, 1, 50)[0];
  EXPECT_EQ(stop_id.reason, FinishReason::stop_id);
  EXPECT_EQ(stop_id.tokens.back(), whole.tokens[4]);
}

TEST_F(GeneratorTest, PaddingOfTheVocabularyIsNeverDrawn) {
  std::vector<GenerationRequest> requests(8, {.prompt = {1}, .max_tokens = 40, .vocabulary = 5});
  for (size_t i = 0; i < requests.size(); ++i) requests[i].stream = i;
  requests[0].sampling.temperature = 0;
  for (const Result& result : run(requests, 8, 50)) {
    for (int32_t id : result.tokens) EXPECT_LT(id, 5);
  }
}

TEST_F(GeneratorTest, LogitsThatAreNotFiniteEndARequest) {
  const GenerationRequest request{.prompt = {1, 2}, .max_tokens = 4};
  const std::string weights = folder_.path().string() + "/model.safetensors";
  std::string bytes = read_file(weights);
  bytes.replace(bytes.size() - 64, 64, 64, '\xff');  // sixteen NaN
  write_file_atomically(weights, bytes);
  const Result result = run({request}, 1, 50)[0];
  EXPECT_EQ(result.reason, FinishReason::non_finite);
  EXPECT_TRUE(result.tokens.empty());
}

TEST_F(GeneratorTest, RequestsThatCannotRunAreNamed) {
  const auto with = [&](std::vector<int32_t> prompt) {
    return run({{.prompt = {1}, .max_tokens = 1}, {.prompt = std::move(prompt), .max_tokens = 3}}, 2, 50, 4);
  };
  KEEL_EXPECT_ERROR(with({}), ErrorKind::config, "no tokens to start from (prompt 2)");
  KEEL_EXPECT_ERROR(with({23}), ErrorKind::config, "token id 23 is outside the model's vocabulary of 23 (prompt 2)");
  KEEL_EXPECT_ERROR(with({1, 2, 3, 4}), ErrorKind::config, "4 tokens leave no room in a context of 4 (prompt 2)");
}

TEST_F(GeneratorTest, APassThatIsInterruptedGivesNoTokens) {
  const std::vector<GenerationRequest> requests{{.prompt = {1, 2}, .max_tokens = 20}};
  const GeneratorSizes sizes = generator_sizes(requests, 0, 1, 100);
  int64_t tokens = 0;
  InferenceModel model(ctx_, open_model_folder(folder_.path().string()), sizes.decoder_options(),
                       [&] { return tokens == 3; });
  const Generator::Callbacks callbacks{.on_token = [&](int64_t, int32_t) { return ++tokens > 0; }, .on_finish = {}};
  try {
    Generator(model, sizes).run(requests, callbacks);
    ADD_FAILURE() << "went on";
  } catch (const Stopped& stopped) {
    EXPECT_EQ(stopped.signal, 0) << "no signal came";
  }
  EXPECT_EQ(tokens, 3);
}

TEST_F(GeneratorTest, MemoryThatIsRefusedIsNoTrainingSetting) {
  GeneratorSizes sizes = generator_sizes({}, 0, 1, 100);
  sizes.max_tokens = int64_t{1} << 42;
  const Error error = testing::error_of(
      [&] { InferenceModel(ctx_, open_model_folder(folder_.path().string()), sizes.decoder_options()); });
  EXPECT_EQ(error.kind(), ErrorKind::memory);
  EXPECT_EQ(std::string(error.what()).find("train."), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("fewer tokens"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace keel
