#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "keel/base/export.h"
#include "keel/kernels/common/isa.h"

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

/// Draws tokens. Keeps the memory that it works in.
class KEEL_API Sampler {
 public:
  /// `uniform` in [0, 1) decides. Nothing if a logit is NaN or infinite: what the model says is then worth nothing.
  std::optional<int32_t> draw(std::span<const float> logits, const SamplingOptions& options, double uniform);

  struct Candidate {
    float logit;
    int32_t id;
  };

 private:
  int32_t draw_from_all(double uniform) const;
  int32_t draw_from_best(std::span<const float> logits, const SamplingOptions& options, double uniform);

  Isa isa_ = best_isa();
  std::vector<float> weights_;  ///< of each id, the largest is 1
  std::vector<float> sums_;     ///< of the weights, block by block
  std::vector<Candidate> candidates_;
};

/// What a Sampler allocates at most.
KEEL_API int64_t sampling_bytes(int64_t vocab_size);

}  // namespace keel
