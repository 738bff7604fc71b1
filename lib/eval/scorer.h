#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "keel/base/export.h"
#include "keel/inference/inference_model.h"

namespace keel {

/// How probable a continuation is after a context.
struct ScoreRequest {
  std::vector<int32_t> context;       ///< one token or more
  std::vector<int32_t> continuation;  ///< one token or more
};

struct Score {
  double log_likelihood = 0;  ///< sum over the continuation's tokens of ln p(token | all before it), in nats
  bool is_greedy = true;      ///< every one of them is the most probable token (of equal ones the lowest id)
  bool truncated = false;     ///< the context lost tokens at its beginning
};

struct ScorerSizes {
  int64_t max_length = 0;     ///< positions of the model that are used: context and continuation without the last token
  int64_t max_tokens = 4096;  ///< of a batch; at least max_length is planned
  int64_t page_size = 16;
  /// What probabilities are rounded to. fp32 is the way; the others give what transformers gives for a model that runs
  /// in that type: logits rounded, ln p of each token rounded, their sum rounded, and ties won by the lowest id.
  enum class Softmax { fp32, bf16, fp16 } softmax = Softmax::fp32;

  /// The decoder options that give a model this room: the batch, and a cache for one batch's shared beginnings.
  KEEL_API DecoderOptions decoder_options() const;
};

/// Scores many requests. What several have in common at their beginning (a task's examples, a question with several
/// answers) is run once and shared through the key-value cache, in whole pages; the order of work is that of the sorted
/// tokens, so it depends on the requests alone.
class KEEL_API Scorer {
 public:
  /// `model` was made with sizes.decoder_options().
  Scorer(InferenceModel& model, const ScorerSizes& sizes);
  ~Scorer();

  /// One score a request, in their order. Of a context that is too long the beginning is dropped. Error(config) naming
  /// the request whose context or continuation is empty, holds an id outside the vocabulary, or whose continuation is
  /// longer than max_length. `tick(done)` counts requests. Stopped after a signal.
  std::vector<Score> run(std::span<const ScoreRequest> requests, const std::function<void(int64_t)>& tick = {});

  /// Tokens that the model has run so far, and how many it would have run without sharing.
  int64_t tokens_run() const { return tokens_run_; }
  int64_t tokens_asked() const { return tokens_asked_; }

 private:
  class Run;
  InferenceModel& model_;
  ScorerSizes sizes_;
  int64_t tokens_run_ = 0, tokens_asked_ = 0;
};

}  // namespace keel
