#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/generate/sampling.h"
#include "keel/inference/inference_model.h"
#include "keel/model/kv_cache.h"

namespace keel {

/// One continuation to make.
struct GenerationRequest {
  std::string where;              ///< what errors call the prompt; "": by its number, "prompt 1"
  std::vector<int32_t> prompt;    ///< one token or more
  int64_t max_tokens = 0;         ///< to generate at most, 1 or more
  std::vector<int32_t> stop_ids;  ///< generation ends with any of these, which belongs to the result
  int64_t vocabulary = 0;         ///< ids from here on are never drawn: rows that only pad the model's; 0: all may be
  SamplingOptions sampling;
  uint64_t seed = 0, stream = 0;  ///< token i is drawn by uniform(seed, stream, i), whatever else runs beside it
};

enum class FinishReason {
  stop_id,     ///< one of stop_ids came
  stopped,     ///< on_token said so
  max_tokens,  ///<
  context,     ///< the positions of the model or of the cache are used up
  non_finite,  ///< a logit was NaN or infinite: no token came of it, and the model's weights are broken
};
KEEL_API const char* to_string(FinishReason reason);

/// Memory and sizes with which to generate for some requests. The generator itself takes host_bytes() beside the
/// model's.
struct GeneratorSizes {
  int64_t max_tokens = 0;     ///< of a batch
  int64_t max_positions = 0;  ///< prompt and continuation of the longest request
  int64_t pages = 0, page_size = 16;
  int64_t batch_sequences = 0;

  /// The decoder options that give the model this room.
  KEEL_API DecoderOptions decoder_options() const;
  KEEL_API int64_t host_bytes(int64_t vocab_size) const;
};

/// Room for `requests`, at most `batch_sequences` of them at a time and batches of about `max_tokens` tokens, within
/// the model's max_position_embeddings (0: no limit).
KEEL_API GeneratorSizes generator_sizes(std::span<const GenerationRequest> requests, int64_t max_position_embeddings,
                                        int64_t batch_sequences, int64_t max_tokens);

/// Why a model of this vocabulary can't continue a prompt with `max_positions` positions: it has no token, one outside
/// the vocabulary, or leaves no position for a continuation; nothing if it can.
KEEL_API std::optional<std::string> problem_of_prompt(std::span<const int32_t> prompt, int64_t max_positions,
                                                      int64_t vocab_size);

/// Error(config) naming the first request whose prompt has no token, one outside the model's vocabulary, or leaves no
/// position for a continuation.
KEEL_API void require_runnable(std::span<const GenerationRequest> requests, const GeneratorSizes& sizes,
                               int64_t vocab_size);

/// Generates for many requests at once: prompts are read in pieces that share batches with the sequences that already
/// generate, and a place that becomes free is taken by the next request. The result of a request does not depend on the
/// others beyond rounding.
class KEEL_API Generator {
 public:
  /// on_token(request, id): a new token; false ends that request. on_finish(request, reason).
  struct Callbacks {
    std::function<bool(int64_t, int32_t)> on_token;
    std::function<void(int64_t, FinishReason)> on_finish;
  };

  /// `model` was made with sizes.decoder_options().
  Generator(InferenceModel& model, const GeneratorSizes& sizes);

  /// Errors as require_runnable. Stopped after a signal, and where the model's `interrupted` ends a pass for another
  /// reason (its `signal` is 0 then).
  void run(std::span<const GenerationRequest> requests, const Callbacks& callbacks);

 private:
  struct Running;
  class Run;
  InferenceModel& model_;
  GeneratorSizes sizes_;
};

}  // namespace keel
