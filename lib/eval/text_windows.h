#pragma once

#include <cstdint>
#include <functional>
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

/// Tokens [begin, end) of a text, of which those from `scored` on are predicted.
struct TextWindow {
  int64_t begin = 0, scored = 0, end = 0;
};

/// The windows of a text of so many tokens, every one of which is predicted at most once:
///   with BOS      windows of N - 1 tokens behind a BOS; all of them are predicted
///   without       windows of N tokens, of which the first is only context
/// With a stride S below that, windows begin S tokens apart, and all but the first count their last S tokens only (the
/// last one those that are new). Error(config) unless N >= 2 and 1 <= S <= tokens of a window.
KEEL_API std::vector<TextWindow> cut_windows(int64_t tokens, const TextWindows& windows);

/// The request that scores a window: context and continuation.
KEEL_API ScoreRequest window_request(std::span<const int32_t> tokens, const TextWindow& window,
                                     const TextWindows& windows);

struct TextScore {
  double log_likelihood = 0;  ///< nats; NaN if the model gives NaN
  int64_t tokens = 0;         ///< predicted
};

/// The log-likelihood of a text. Requests are made for some hundred thousand tokens at a time, so memory does not grow
/// with the text. `tick(done)` counts windows. Errors as cut_windows and Scorer::run.
KEEL_API TextScore score_text(Scorer& scorer, std::span<const int32_t> tokens, const TextWindows& windows,
                              const std::function<void(int64_t)>& tick = {});

}  // namespace keel
