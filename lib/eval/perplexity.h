#pragma once

#include <cstdint>
#include <string_view>

#include "keel/base/export.h"
#include "keel/base/json.h"

namespace keel {

/// What the log-likelihood of texts is divided by.
struct TextCounts {
  int64_t tokens = 0;  ///< predicted
  int64_t words = 0;   ///< pieces of a split at runs of white space, as Python's re.split(r"\s+", text) counts them: an
                       ///< end with white space adds an empty piece
  int64_t bytes = 0;   ///< UTF-8, as given

  void add(const TextCounts& other) {
    tokens += other.tokens;
    words += other.words;
    bytes += other.bytes;
  }
};

/// Pieces of re.split(r"\s+", text). White space is Unicode's, with U+001C .. U+001F, as Python has it; bytes that are
/// not UTF-8 are none.
KEEL_API int64_t count_words(std::string_view text);

/// {"nats_per_token", "token_perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "tokens", "words",
/// "bytes"}: exp(-ll / count), and -ll / bytes / ln 2. A count of 0 gives null.
KEEL_API Json perplexity_json(double log_likelihood, const TextCounts& counts);

}  // namespace keel
