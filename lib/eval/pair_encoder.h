#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "keel/base/export.h"
#include "keel/eval/scorer.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {

struct PairEncoderOptions {
  enum class Bos { tokenizer, off, on } bos = Bos::tokenizer;  ///< before the context: as the tokenizer's files say
  std::optional<int32_t> prefix_token_id;                      ///< stands for an empty context; absent: BOS, else EOS
  bool encode_empty_alone = false;  ///< a continuation that has no token of its own is encoded by itself
};

/// Turns a context and its continuation into tokens as lm-evaluation-harness does for causal models:
///   white space at the end of the context goes to the beginning of the continuation;
///   whole = encode(context + continuation), context = encode(context), both with BOS where asked for and not there in
///   the text already; the continuation's tokens are whole's after as many as the context has, whether or not whole
///   begins with them (merges cross the joint);
///   an empty context is the prefix token alone, before the continuation's own tokens without that token.
/// Texts of control tokens become those tokens. Nothing is put at the end.
class KEEL_API PairEncoder {
 public:
  /// Error(usage) for BOS on with a tokenizer that has none, or a prefix id outside its vocabulary.
  PairEncoder(std::shared_ptr<const Tokenizer> tokenizer, const PairEncoderOptions& options);
  ~PairEncoder();

  /// Error(format) for a continuation without a token of its own, or a context without any.
  ScoreRequest encode(const std::string& context, const std::string& continuation);

  /// Whether texts begin with BOS, and the token that stands for an empty context (none: there is none).
  bool adds_bos() const { return bos_.has_value(); }
  std::optional<int32_t> prefix() const { return prefix_; }
  /// Bytes of all texts so far that the vocabulary cannot spell (TokenEncoder::lost_bytes).
  int64_t lost_bytes() const { return encoder_->lost_bytes(); }

 private:
  std::vector<int32_t> encode_text(const std::string& text, bool with_bos);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<TokenEncoder> encoder_;
  PairEncoderOptions options_;
  std::optional<int32_t> bos_, prefix_;
  std::string bos_text_;
  std::string last_context_;  // and its ids: choices share their context
  std::vector<int32_t> last_ids_;
};

}  // namespace keel
