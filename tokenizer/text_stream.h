#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {

/// Text of a continuation as its tokens come, up to the first of some stop strings: whole characters only, and nothing
/// that may still turn out to be the beginning of a stop string.
class KEEL_API TextStream {
 public:
  /// What follows `prompt`, which decides whether a first space is shown. Empty stop strings are ignored.
  TextStream(std::unique_ptr<TokenDecoder> decoder, std::vector<std::string> stops,
             std::span<const int32_t> prompt = {});

  /// Appends to `text` what is certain now. False once a stop string has come: what stood before it has been given out,
  /// and append() is not to be called again. Of two stop strings the one that begins first counts.
  bool append(int32_t id, std::string& text);
  /// The end without a stop string: what was held back (unless bytes that complete now hold a stop string).
  void finish(std::string& text);

 private:
  bool give_out(std::string& text);

  std::unique_ptr<TokenDecoder> decoder_;
  std::vector<std::string> stops_;
  std::string pending_;
};

}  // namespace keel
