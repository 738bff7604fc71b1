#pragma once

#include <memory>
#include <string>

#include "keel/train/text_codec.h"

namespace keel {

/// The codec of a tokenizer's file or folder; errors as load_tokenizer gives them.
std::shared_ptr<const TextCodec> open_text_codec(const std::string& tokenizer_path);

}  // namespace keel
