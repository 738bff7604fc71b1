#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "keel/base/export.h"

namespace keel {

/// How the next token is drawn from logits z:
///   temperature 0   the largest logit, of equal ones the lowest id (greedy)
///   otherwise       p = softmax(z / temperature), kept to the top_k most probable tokens (0: all) and of those to the
///                   fewest whose probabilities, renormalised, add up to top_p or more; then drawn from what is kept
/// Ties at both cuts go to the lower id, so that what is kept never depends on an order of sorting.
struct SamplingOptions {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
};

/// `uniform` in [0, 1) decides. Nothing if a logit is NaN or infinite: what the model says is then worth nothing.
KEEL_API std::optional<int32_t> sample_token(std::span<const float> logits, const SamplingOptions& options,
                                             double uniform);

/// What sample_token allocates at most.
KEEL_API int64_t sampling_bytes(int64_t vocab_size);

}  // namespace keel
