#pragma once

#include <cstdint>
#include <functional>

#include "keel/base/export.h"
#include "keel/data/batch.h"

namespace keel {

struct UnigramLoss {
  double nats_per_token = 0;  ///< weighted mean over the validation targets
  int64_t targets = 0;        ///< those with a weight that is not 0
};

/// What a model that knows only how often each token occurs would score: cross-entropy of the validation targets (the
/// first `tokens` of them, as BatchReader::validation_sequences) under the frequencies of the whole training stream(s)
/// with add-one smoothing: p(v) = (count(v) + 1) / (tokens + V), V = vocab_size of the training reader's options.
/// `tick`, when given, is called between pieces of 2^16 tokens; what it throws ends the work.
KEEL_API UnigramLoss unigram_cross_entropy(const BatchReader& train, const BatchReader& validation, int64_t tokens,
                                           const std::function<void()>& tick = {});

}  // namespace keel
