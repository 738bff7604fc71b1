#include "keel/eval/scorer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/base/error.h"
#include "support/errors.h"
#include "support/model_files.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace keel {
namespace {

constexpr int64_t kMaxLength = 40;

class ScorerTest : public ::testing::Test {
 protected:
  ScorerTest() {
    testing::write_small_model(folder_.path().string());
    plain_.emplace(ctx_, open_model_folder(folder_.path().string()),
                   DecoderOptions{.max_tokens = 200, .max_positions = 200, .logit_rows = 200});
  }

  std::vector<Score> scores(const std::vector<ScoreRequest>& requests, int64_t max_tokens,
                            int64_t max_length = kMaxLength,
                            ScorerSizes::Softmax softmax = ScorerSizes::Softmax::fp32) {
    const ScorerSizes sizes{.max_length = max_length, .max_tokens = max_tokens, .page_size = 4, .softmax = softmax};
    InferenceModel model(ctx_, open_model_folder(folder_.path().string()), sizes.decoder_options());
    Scorer scorer(model, sizes);
    int64_t ticked = 0;
    std::vector<Score> result = scorer.run(requests, [&](int64_t done) { ticked = done; });
    EXPECT_EQ(ticked, static_cast<int64_t>(requests.size()));
    tokens_run_ = scorer.tokens_run();
    tokens_asked_ = scorer.tokens_asked();
    return result;
  }

  /// The same from the logits of the request alone, without a cache, in double.
  Score expected(const ScoreRequest& request, int64_t max_length = kMaxLength) {
    std::vector<int32_t> tokens = request.context, positions, rows, bounds{0};
    tokens.insert(tokens.end(), request.continuation.begin(), request.continuation.end());
    tokens.pop_back();
    while (static_cast<int64_t>(tokens.size()) > max_length) tokens.erase(tokens.begin());
    const auto N = static_cast<int64_t>(tokens.size());
    for (int32_t n = 0; n < N; ++n) positions.push_back(n), rows.push_back(n);
    bounds.push_back(static_cast<int32_t>(N));
    HostBatch batch;
    batch.tokens = {tokens.data(), {N}};
    batch.positions = {positions.data(), {N}};
    batch.cu_seqlens = {bounds.data(), {2}};
    EXPECT_TRUE(plain_->forward(batch));
    const int64_t V = plain_->config().vocab_size;
    std::vector<float> logits(N * V);
    plain_->logits({rows.data(), {N}}, {logits.data(), {N, V}});
    Score score;
    const auto C = static_cast<int64_t>(request.continuation.size());
    for (int64_t i = 0; i < C; ++i) {
      const float* l = &logits[(N - C + i) * V];
      const int32_t target = request.continuation[i];
      double sum = 0;
      for (int64_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(l[v]));
      score.log_likelihood += l[target] - std::log(sum);
      score.is_greedy = score.is_greedy && std::max_element(l, l + V) - l == target;
    }
    return score;
  }

  void expect_right(const std::vector<ScoreRequest>& requests, const std::vector<Score>& found,
                    int64_t max_length = kMaxLength) {
    ASSERT_EQ(found.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const Score wanted = expected(requests[i], max_length);
      EXPECT_NEAR(found[i].log_likelihood, wanted.log_likelihood, 1e-4) << i;
      EXPECT_EQ(found[i].is_greedy, wanted.is_greedy) << i;
      EXPECT_EQ(found[i].truncated,
                static_cast<int64_t>(requests[i].context.size() + requests[i].continuation.size()) - 1 > max_length);
    }
  }

  testing::TempDir folder_;
  Context ctx_ = testing::test_context(2);
  std::optional<InferenceModel> plain_;
  int64_t tokens_run_ = 0, tokens_asked_ = 0;
};

std::vector<int32_t> draw(testing::Random& random, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random.integer(0, 22)));
  return tokens;
}

/// Questions after common examples, each with several answers, some of one token.
std::vector<ScoreRequest> multiple_choice(int64_t questions, int64_t examples, uint64_t seed) {
  testing::Random random(seed);
  std::vector<ScoreRequest> requests;
  const std::vector<int32_t> shots = draw(random, examples);
  for (int64_t q = 0; q < questions; ++q) {
    std::vector<int32_t> context = shots;
    for (int32_t token : draw(random, random.integer(1, 9))) context.push_back(token);
    for (int64_t choice = 0; choice < 4; ++choice) {
      requests.push_back({context, draw(random, q % 2 == 0 ? 1 : random.integer(1, 7))});
    }
  }
  return requests;
}

TEST_F(ScorerTest, AsEachRequestAloneWhateverTheBatch) {
  const auto requests = multiple_choice(9, 17, 1);
  for (int64_t max_tokens : {1, 50, 1000}) {
    SCOPED_TRACE(max_tokens);
    expect_right(requests, scores(requests, max_tokens));
    EXPECT_LT(tokens_run_, tokens_asked_ / 2) << "examples and questions are shared";
  }
}

TEST_F(ScorerTest, RequestsWithNothingInCommonAndEqualOnes) {
  testing::Random random(2);
  std::vector<ScoreRequest> requests;
  for (int i = 0; i < 20; ++i) requests.push_back({draw(random, random.integer(1, 30)), draw(random, 3)});
  for (int i = 0; i < 5; ++i) requests.push_back(requests[3]);
  expect_right(requests, scores(requests, 64));
}

TEST_F(ScorerTest, LongContextsLoseTheirBeginning) {
  testing::Random random(3);
  std::vector<ScoreRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back({draw(random, 20 + 8 * i), draw(random, 1 + 2 * i)});
  requests.push_back({draw(random, 3), draw(random, 16)});  // as long as the context
  expect_right(requests, scores(requests, 100, 16), 16);
}

TEST_F(ScorerTest, RoundedProbabilities) {
  const auto requests = multiple_choice(5, 3, 4);
  const auto exact = scores(requests, 1000);
  for (const auto& [softmax, bits] : {std::pair(ScorerSizes::Softmax::bf16, 8), {ScorerSizes::Softmax::fp16, 11}}) {
    const auto rounded = scores(requests, 1000, kMaxLength, softmax);
    bool differs = false;
    for (size_t i = 0; i < requests.size(); ++i) {
      const double ll = rounded[i].log_likelihood;
      int exponent = 0;
      const double mantissa = std::ldexp(std::frexp(ll, &exponent), bits);
      EXPECT_EQ(mantissa, std::round(mantissa)) << "a value of the type: " << ll;
      // Each token's logits, largest logit, difference and ln p, and then the sum, are rounded to half a unit.
      const double unit = std::ldexp(1.0, -bits);
      const auto count = static_cast<double>(requests[i].continuation.size());
      EXPECT_NEAR(ll, exact[i].log_likelihood, unit * (std::abs(ll) + count * 4 * 8)) << "logits are below 8";
      differs = differs || ll != exact[i].log_likelihood;
    }
    EXPECT_TRUE(differs);
  }
}

TEST_F(ScorerTest, GreedyMeansEveryToken) {
  ScoreRequest request{.context = {1, 2, 3}, .continuation = {0}};
  for (int32_t id = 0; id < 23; ++id) {
    request.continuation = {id};
    if (expected(request).is_greedy) break;
  }
  const ScoreRequest longer{request.context, {request.continuation[0], 0}};
  const std::vector<Score> found = scores({request, longer}, 100);
  EXPECT_TRUE(found[0].is_greedy);
  EXPECT_EQ(found[1].is_greedy, expected(longer).is_greedy);
}

TEST_F(ScorerTest, WhatCannotBeScoredIsNamed) {
  const ScoreRequest good{{1}, {2}};
  const auto with = [&](ScoreRequest bad) { return scores({good, std::move(bad)}, 100, 4); };
  KEEL_EXPECT_ERROR(with({{}, {1}}), ErrorKind::config, "an empty context or continuation (request 1)");
  KEEL_EXPECT_ERROR(with({{1}, {}}), ErrorKind::config, "an empty context or continuation (request 1)");
  KEEL_EXPECT_ERROR(with({{23}, {1}}), ErrorKind::config,
                    "token id 23 is outside the model's vocabulary of 23 (request 1)");
  KEEL_EXPECT_ERROR(with({{1}, {1, 2, 3, 4, 5}}), ErrorKind::config,
                    "a continuation of 5 tokens is longer than the context of 4 (request 1)");
}

}  // namespace
}  // namespace keel
