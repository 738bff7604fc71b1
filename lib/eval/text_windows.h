#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "keel/base/export.h"
#include "keel/eval/scorer.h"

namespace keel {

/// How one long text is cut for its perplexity.
struct TextWindows {
  int64_t window = 0;             ///< N, positions of the model that a window takes
  std::optional<int64_t> stride;  ///< S; absent: windows follow each other without overlap
  std::optional<int32_t> bos;     ///< goes before each window; absent: its first token is not predicted
};

/// The requests whose log-likelihoods add up to that of the text, every token at most once:
///   with BOS      windows of N - 1 tokens behind a BOS; all of them are predicted
///   without       windows of N tokens, of which the first is only context
/// With a stride S below that, windows begin S tokens apart, and all but the first count their last S tokens only (the
/// last one those that are new). Error(config) unless N >= 2 and 1 <= S <= tokens of a window (without BOS: below it).
KEEL_API std::vector<ScoreRequest> text_requests(std::span<const int32_t> tokens, const TextWindows& windows);

}  // namespace keel
