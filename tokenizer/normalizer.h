#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizer/tokenizer_spec.h"

namespace keel {

/// Unicode normal form C, D, KC or KD of valid UTF-8, appended. Linear in time but for the sorting of marks. TextTooLong
/// once `out` has more than `most` bytes.
void append_normal_form(NormalizerStep::Kind form, std::string_view text, std::string& out,
                        size_t most = std::string::npos);

/// What a tokenizer does to text before it looks for pieces. Immutable.
class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  /// The normalised text: `text` itself if nothing changes, else in `buffer`. `spare` is room to work in. An empty text
  /// stays empty. TextTooLong if a step makes more than most_rewritten(text.size()) bytes, before they are written.
  std::string_view apply(std::string_view text, std::string& buffer, std::string& spare) const;
  std::string applied(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace keel
