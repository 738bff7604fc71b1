#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "keel/base/export.h"

namespace keel {

/// Text to tokens and back, for the samples of a run. The program that trains brings it: this library knows no
/// tokenizers.
class KEEL_API TextCodec {
 public:
  virtual ~TextCodec() = default;
  /// The tokens that a model continues from, as keel-generate makes them; none if the tokenizer leaves nothing of the
  /// text. Error(format) for a text that is not UTF-8, Error(usage) for an empty one where the tokenizer has no token
  /// to start with.
  virtual std::vector<int32_t> encode_prompt(const std::string& text) const = 0;
  /// The text that these tokens add to the prompt's.
  virtual std::string continuation(std::span<const int32_t> prompt, std::span<const int32_t> tokens) const = 0;
  /// Tokens that end a document.
  virtual std::vector<int32_t> stop_ids() const = 0;
  /// Ids are 0 .. vocab_size() - 1; a model may have more.
  virtual int64_t vocab_size() const = 0;
};

/// The codec of a tokenizer's file. Errors as the tokenizer's reader gives them.
using OpenTextCodec = std::function<std::shared_ptr<const TextCodec>(const std::string& tokenizer_path)>;

}  // namespace keel
