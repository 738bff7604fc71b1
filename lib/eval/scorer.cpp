#include "keel/eval/scorer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/signals.h"
#include "keel/checkpoint/float16.h"
#include "keel/model/kv_cache.h"

namespace keel {
namespace {

int64_t pages_of(int64_t tokens, int64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

int64_t batch_tokens(const ScorerSizes& sizes) {
  return std::max(sizes.max_tokens, sizes.max_length);
}

/// What the model is given for a request: the last tokens that fit, without the very last, which is only predicted.
struct Work {
  std::vector<int32_t> tokens;
  int64_t first_scored = 0;  // row that predicts the first token of the continuation
};

/// The value in the type that probabilities are kept in; double stands for fp32, whose sums are exact enough.
double rounded(double value, ScorerSizes::Softmax type) {
  if (type == ScorerSizes::Softmax::fp32) return value;
  const auto single = static_cast<float>(value);
  return type == ScorerSizes::Softmax::bf16 ? widen_bf16(narrow_bf16(single)) : widen_f16(narrow_f16(single));
}

/// Logits to ln p, both rounded to the type, with sums in fp32.
void round_log_softmax(std::span<float> row, ScorerSizes::Softmax type) {
  float largest = -std::numeric_limits<float>::infinity();
  for (float& x : row) {
    x = static_cast<float>(rounded(x, type));
    largest = std::max(largest, x);
  }
  double sum = 0;
  for (float x : row) sum += std::exp(x - largest);
  const auto log_sum = static_cast<float>(std::log(sum));
  for (float& x : row) x = static_cast<float>(rounded((x - largest) - log_sum, type));
}

}  // namespace

DecoderOptions ScorerSizes::decoder_options() const {
  // A batch of requests that share nothing wastes less than a page each; when pages run out a batch ends early. Two
  // requests of full length always fit: the one before, whose beginning may be shared, and the next.
  const int64_t pages = std::max(2 * pages_of(max_length, page_size) + 2, 2 * pages_of(batch_tokens(*this), page_size));
  return {.max_tokens = batch_tokens(*this),
          .max_positions = max_length,
          .training = false,
          .cache_pages = pages,
          .page_size = page_size,
          .logit_rows = batch_tokens(*this)};
}

/// One call of run().
class Scorer::Run {
 public:
  Run(Scorer& scorer, std::span<const ScoreRequest> requests, const std::function<void(int64_t)>& tick)
      : scorer_(scorer),
        model_(scorer.model_),
        sizes_(scorer.sizes_),
        requests_(requests),
        tick_(tick),
        pages_(sizes_.decoder_options().cache_pages, sizes_.page_size),
        scores_(requests.size()) {}

  std::vector<Score> run() {
    for (size_t i = 0; i < requests_.size(); ++i) work_.push_back(make_work(i));
    std::vector<size_t> order(requests_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return work_[a].tokens < work_[b].tokens; });
    for (size_t index : order) {
      if (!add(index)) {
        run_batch();
        if (!add(index)) {
          forget_previous();
          if (!add(index)) throw Error(ErrorKind::internal, "a request does not fit an empty cache");
        }
      }
    }
    run_batch();
    for (Score& score : scores_) score.log_likelihood = rounded(score.log_likelihood, sizes_.softmax);
    return std::move(scores_);
  }

 private:
  Work make_work(size_t index) {
    const ScoreRequest& request = requests_[index];
    const std::string where = fmt::format("request {}", index);
    if (request.context.empty() || request.continuation.empty()) {
      throw Error(ErrorKind::config, "an empty context or continuation", where);
    }
    const auto length = static_cast<int64_t>(request.continuation.size());
    if (length > sizes_.max_length) {
      throw Error(
          ErrorKind::config,
          fmt::format("a continuation of {} tokens is longer than the context of {}", length, sizes_.max_length),
          where);
    }
    Work work{.tokens = request.context};
    work.tokens.insert(work.tokens.end(), request.continuation.begin(), request.continuation.end());
    for (int32_t id : work.tokens) {
      if (id >= 0 && id < model_.config().vocab_size) continue;
      throw Error(ErrorKind::config,
                  fmt::format("token id {} is outside the model's vocabulary of {}", id, model_.config().vocab_size),
                  where);
    }
    work.tokens.pop_back();
    const int64_t excess = static_cast<int64_t>(work.tokens.size()) - sizes_.max_length;
    if (excess > 0) work.tokens.erase(work.tokens.begin(), work.tokens.begin() + excess);
    scores_[index].truncated = excess > 0;
    work.first_scored = static_cast<int64_t>(work.tokens.size()) - length;
    return work;
  }

  /// Tokens at the beginning that the request before has too and that need not be run again.
  int64_t shared_with_previous(const Work& work) const {
    if (previous_ < 0) return 0;
    const auto& before = work_[previous_index_].tokens;
    const auto end = std::mismatch(work.tokens.begin(), work.tokens.end(), before.begin(), before.end());
    return std::min<int64_t>(end.first - work.tokens.begin(), work.first_scored);
  }

  /// False if the batch or the cache is full. The keys and values of every token of a batch are stored before its
  /// attention reads any, so that a request may share pages with one of the same batch.
  bool add(size_t index) {
    const Work& work = work_[index];
    const int64_t sequence = previous_ >= 0 ? pages_.fork(previous_, shared_with_previous(work)) : pages_.create();
    const int64_t start = pages_.length(sequence);
    const std::span<const int32_t> rest = std::span(work.tokens).subspan(static_cast<size_t>(start));
    const bool fits = batch_.tokens() + static_cast<int64_t>(rest.size()) <= batch_tokens(sizes_);
    const int64_t first_row = batch_.tokens();
    if (!fits || !batch_.add(pages_, sequence, rest)) {
      pages_.release(sequence);
      return false;
    }
    const auto& continuation = requests_[index].continuation;
    for (size_t i = 0; i < continuation.size(); ++i) {
      rows_.push_back(static_cast<int32_t>(first_row + work.first_scored - start + static_cast<int64_t>(i)));
      targets_.push_back(continuation[i]);
      owners_.push_back(index);
    }
    if (previous_ >= 0) used_.push_back(previous_);
    previous_ = sequence;
    previous_index_ = index;
    ++added_;
    scorer_.tokens_run_ += static_cast<int64_t>(rest.size());
    scorer_.tokens_asked_ += static_cast<int64_t>(work.tokens.size());
    return true;
  }

  void run_batch() {
    throw_if_stopped();
    if (batch_.tokens() == 0) return;
    if (!model_.forward(batch_.host())) {
      throw_if_stopped();
      throw Error(ErrorKind::internal, "the model was interrupted without a signal");
    }
    std::vector<float> nll(rows_.size());
    std::vector<int32_t> argmax(rows_.size());
    if (sizes_.softmax == ScorerSizes::Softmax::fp32) {
      const auto K = static_cast<int64_t>(rows_.size());
      const std::vector<float> weights(rows_.size(), 1.0F);
      model_.score({rows_.data(), {K}}, {targets_.data(), {K}}, {weights.data(), {K}}, {nll.data(), {K}},
                   {argmax.data(), {K}});
    } else {
      score_rounded(nll, argmax);
    }
    for (size_t k = 0; k < rows_.size(); ++k) {
      Score& score = scores_[owners_[k]];
      score.log_likelihood -= nll[k];
      score.is_greedy = score.is_greedy && argmax[k] == targets_[k];
    }
    for (int64_t sequence : used_) pages_.release(sequence);
    used_.clear();
    batch_.clear();
    rows_.clear();
    targets_.clear();
    owners_.clear();
    if (tick_) tick_(added_);
  }

  /// score() with probabilities in a 16-bit type.
  void score_rounded(std::vector<float>& nll, std::vector<int32_t>& argmax) {
    constexpr int64_t kRows = 16;
    const int64_t vocab = model_.config().vocab_size;
    std::vector<float> logits(static_cast<size_t>(kRows * vocab));
    const auto K = static_cast<int64_t>(rows_.size());
    for (int64_t first = 0; first < K; first += kRows) {
      const int64_t count = std::min(kRows, K - first);
      model_.logits({rows_.data() + first, {count}}, {logits.data(), {count, vocab}});
      for (int64_t k = 0; k < count; ++k) {
        const std::span<float> row(logits.data() + k * vocab, static_cast<size_t>(vocab));
        round_log_softmax(row, sizes_.softmax);
        nll[first + k] = -row[targets_[first + k]];
        argmax[first + k] = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      }
    }
  }

  void forget_previous() {
    if (previous_ >= 0) pages_.release(previous_);
    previous_ = -1;
  }

  Scorer& scorer_;
  InferenceModel& model_;
  const ScorerSizes& sizes_;
  std::span<const ScoreRequest> requests_;
  const std::function<void(int64_t)>& tick_;
  KvPages pages_;
  std::vector<Score> scores_;
  std::vector<Work> work_;

  CachedBatch batch_;
  std::vector<int32_t> rows_, targets_;  // of the batch: rows to score and what they should predict
  std::vector<size_t> owners_;           // request of each
  std::vector<int64_t> used_;            // sequences of the batch, and of the one before, that end with it
  int64_t previous_ = -1;                // sequence of the last request added
  size_t previous_index_ = 0;
  int64_t added_ = 0;
};

Scorer::Scorer(InferenceModel& model, const ScorerSizes& sizes) : model_(model), sizes_(sizes) {}

Scorer::~Scorer() = default;

std::vector<Score> Scorer::run(std::span<const ScoreRequest> requests, const std::function<void(int64_t)>& tick) {
  return Run(*this, requests, tick).run();
}

}  // namespace keel
