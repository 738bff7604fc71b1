#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "keel/tokenizer/tokenizer.h"

namespace keel {

/// Loads a tokenizer.json, or a vocab.json with the merges.txt beside it, by the rules of GPT2Tokenizer or
/// Qwen2Tokenizer (the tokenizer_class in tokenizer_config.json; without that file GPT-2's, if "<|endoftext|>" is in
/// the vocabulary). `text` is what `file` holds. tokenizer_config.json and special_tokens_map.json beside it are heeded
/// (tokenizer_config.h). Appends the other files it read to `files`.
std::unique_ptr<Tokenizer> load_json_tokenizer(std::string_view text, const std::filesystem::path& file,
                                               std::vector<std::filesystem::path>& files);

}  // namespace keel
