#include "keel/generate/generator.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/rng.h"
#include "keel/base/signals.h"

namespace keel {
namespace {

int64_t length_of(const GenerationRequest& request) {
  return static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
}

}  // namespace

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop_id:
      return "stop_id";
    case FinishReason::stopped:
      return "stop";
    case FinishReason::max_tokens:
      return "max_tokens";
    case FinishReason::context:
      return "context";
    case FinishReason::non_finite:
      return "non_finite";
  }
  return "?";
}

DecoderOptions GeneratorSizes::decoder_options() const {
  return {.max_tokens = max_tokens,
          .max_positions = max_positions,
          .max_sequences = batch_sequences,
          .training = false,
          .cache_pages = pages,
          .page_size = page_size,
          .logit_rows = batch_sequences};
}

int64_t GeneratorSizes::host_bytes(int64_t vocab_size) const {
  return batch_sequences * vocab_size * int64_t{sizeof(float)} + sampling_bytes(vocab_size);
}

GeneratorSizes generator_sizes(std::span<const GenerationRequest> requests, int64_t max_position_embeddings,
                               int64_t batch_sequences, int64_t max_tokens) {
  GeneratorSizes sizes;
  int64_t longest = 2;
  for (const GenerationRequest& request : requests) longest = std::max(longest, length_of(request));
  if (max_position_embeddings > 0) longest = std::min(longest, max_position_embeddings);
  sizes.max_positions = longest;
  sizes.batch_sequences = std::clamp<int64_t>(static_cast<int64_t>(requests.size()), 1, batch_sequences);
  sizes.max_tokens = std::max(sizes.batch_sequences, std::min(max_tokens, sizes.batch_sequences * longest));
  sizes.pages = sizes.batch_sequences * ((longest + sizes.page_size - 1) / sizes.page_size);
  return sizes;
}

std::optional<std::string> problem_of_prompt(std::span<const int32_t> prompt, int64_t max_positions,
                                             int64_t vocab_size) {
  if (prompt.empty()) return "no tokens to start from";
  for (int32_t id : prompt) {
    if (id >= 0 && id < vocab_size) continue;
    return fmt::format("token id {} is outside the model's vocabulary of {}", id, vocab_size);
  }
  if (std::ssize(prompt) < max_positions) return std::nullopt;
  return fmt::format("{} tokens leave no room in a context of {}", prompt.size(), max_positions);
}

void require_runnable(std::span<const GenerationRequest> requests, const GeneratorSizes& sizes, int64_t vocab_size) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto problem = problem_of_prompt(requests[i].prompt, sizes.max_positions, vocab_size);
    if (!problem) continue;
    const std::string& where = requests[i].where;
    throw Error(ErrorKind::config, *problem, where.empty() ? fmt::format("prompt {}", i + 1) : where);
  }
}

/// A request that has a place in the cache.
struct Generator::Running {
  int64_t request = 0;
  int64_t sequence = 0;
  std::vector<int32_t> pending;  // tokens that the model has not seen: of the prompt, or the newest one
  size_t seen = 0;               // of pending
  int64_t generated = 0;
  int64_t logits_row = -1;  // of the last pending token in this batch; -1: more of the prompt is to come
};

/// One call of run().
class Generator::Run {
 public:
  Run(Generator& generator, std::span<const GenerationRequest> requests, const Callbacks& callbacks)
      : model_(generator.model_),
        sizes_(generator.sizes_),
        requests_(requests),
        callbacks_(callbacks),
        V_(model_.config().vocab_size),
        pages_(sizes_.pages, sizes_.page_size),
        logits_(sizes_.batch_sequences * V_) {}

  void run() {
    while (next_ < static_cast<int64_t>(requests_.size()) || !running_.empty()) {
      throw_if_stopped();
      admit();
      fill_batch();
      if (!model_.forward(batch_.host())) throw Stopped{stop_signal()};
      const int64_t K = static_cast<int64_t>(rows_.size());
      if (K > 0) model_.logits({rows_.data(), {K}}, {logits_.data(), {K, V_}});
      std::erase_if(running_, [&](Running& r) { return r.logits_row >= 0 && take_token(r); });
    }
  }

 private:
  void admit() {
    while (next_ < static_cast<int64_t>(requests_.size()) &&
           static_cast<int64_t>(running_.size()) < sizes_.batch_sequences) {
      running_.push_back({.request = next_, .sequence = pages_.create(), .pending = requests_[next_].prompt});
      ++next_;
    }
  }

  /// First the sequences that generate, one token each, then as much of the prompts as fits.
  void fill_batch() {
    batch_.clear();
    rows_.clear();
    std::stable_partition(running_.begin(), running_.end(), [](const Running& r) { return r.generated > 0; });
    for (Running& r : running_) {
      r.logits_row = -1;
      const size_t room = static_cast<size_t>(sizes_.max_tokens - batch_.tokens());
      const size_t count = std::min(r.pending.size() - r.seen, room);
      if (count == 0) continue;
      if (!batch_.add(pages_, r.sequence, std::span(r.pending).subspan(r.seen, count))) {
        throw Error(ErrorKind::internal, "the key-value cache is smaller than planned");
      }
      r.seen += count;
      if (r.seen < r.pending.size()) continue;
      r.logits_row = static_cast<int64_t>(rows_.size());
      rows_.push_back(static_cast<int32_t>(batch_.tokens() - 1));
    }
  }

  std::optional<FinishReason> finish_reason(const Running& r, int32_t id, bool goes_on) const {
    const GenerationRequest& request = requests_[r.request];
    if (std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end()) {
      return FinishReason::stop_id;
    }
    if (!goes_on) return FinishReason::stopped;
    if (r.generated == request.max_tokens) return FinishReason::max_tokens;
    if (pages_.length(r.sequence) == sizes_.max_positions) return FinishReason::context;
    return std::nullopt;
  }

  /// Draws the next token of a sequence; true if it was the last.
  bool take_token(Running& r) {
    const GenerationRequest& request = requests_[r.request];
    const int64_t drawn_from = request.vocabulary > 0 ? std::min(request.vocabulary, V_) : V_;
    const std::span<const float> own(logits_.data() + r.logits_row * V_, static_cast<size_t>(drawn_from));
    const double place = uniform(request.seed, request.stream, static_cast<uint64_t>(r.generated));
    const std::optional<int32_t> id = sampler_.draw(own, request.sampling, place);
    if (!id) return finish(r, FinishReason::non_finite);
    ++r.generated;
    const bool goes_on = !callbacks_.on_token || callbacks_.on_token(r.request, *id);
    if (const std::optional<FinishReason> reason = finish_reason(r, *id, goes_on)) return finish(r, *reason);
    r.pending = {*id};
    r.seen = 0;
    return false;
  }

  bool finish(const Running& r, FinishReason reason) {
    pages_.release(r.sequence);
    if (callbacks_.on_finish) callbacks_.on_finish(r.request, reason);
    return true;
  }

  InferenceModel& model_;
  const GeneratorSizes& sizes_;
  std::span<const GenerationRequest> requests_;
  const Callbacks& callbacks_;
  int64_t V_, next_ = 0;
  KvPages pages_;
  std::vector<Running> running_;
  CachedBatch batch_;
  std::vector<int32_t> rows_;
  std::vector<float> logits_;
  Sampler sampler_;
};

Generator::Generator(InferenceModel& model, const GeneratorSizes& sizes) : model_(model), sizes_(sizes) {}

void Generator::run(std::span<const GenerationRequest> requests, const Callbacks& callbacks) {
  require_runnable(requests, sizes_, model_.config().vocab_size);
  Run(*this, requests, callbacks).run();
}

}  // namespace keel
