#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {

enum class PromptBos {
  automatic,  ///< where the tokenizer's files say so (Tokenizer::adds_bos)
  on,
  off,
};

/// The tokens that a model continues: those of the text, behind BOS where `bos` says so. An empty text is the start of a document: BOS (unless `off`), or EOS, which stands between documents.
/// Error(format) for text that is not UTF-8, Error(usage) for `on` without a BOS token and for an empty text without
/// BOS and EOS. `special` says what the text of a control token becomes. `lost_bytes`, if given, gets TokenEncoder::lost_bytes() added.
KEEL_API std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text,
                                            PromptBos bos = PromptBos::automatic,
                                            SpecialText special = SpecialText::parse, int64_t* lost_bytes = nullptr);

}  // namespace keel
