#pragma once

#include <cstdint>

#include "keel/base/export.h"
#include "keel/base/json.h"

namespace keel {

/// What the log-likelihood of texts is divided by.
struct TextCounts {
  int64_t tokens = 0;  ///< predicted
  int64_t words = 0;   ///< count_words (python_text.h)
  int64_t bytes = 0;   ///< UTF-8, as given

  void add(const TextCounts& other) {
    tokens += other.tokens;
    words += other.words;
    bytes += other.bytes;
  }
};

/// {"nats_per_token", "token_perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "tokens", "words",
/// "bytes"}: exp(-ll / count), and -ll / bytes / ln 2. A count of 0 gives null.
KEEL_API Json perplexity_json(double log_likelihood, const TextCounts& counts);

}  // namespace keel
