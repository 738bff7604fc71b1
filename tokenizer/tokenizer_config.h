#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "keel/tokenizer/bpe_tokenizer.h"
#include "keel/tokenizer/tokenizer_spec.h"

namespace keel {

/// What tokenizer_config.json, or the older special_tokens_map.json, says beside a tokenizer.
struct TokenizerConfig {
  struct Name {
    bool given = false;                  ///< also as null
    std::optional<std::string> content;  ///< the token's text
  };
  std::optional<std::string> tokenizer_class;
  Name bos, eos, unk, pad;
  bool says_what_to_add = false;  ///< add_bos_token or add_eos_token is there
  bool add_bos = false, add_eos = false;
  bool add_prefix_space = false;
  std::vector<AddedToken> added;
  std::vector<std::filesystem::path> files;  ///< that were read
};

/// Of the folder; empty if there is neither file. Error(format).
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

/// The special ids of a tokenizer: by the config, else by its post-processor, else by the names that are usual for
/// special tokens ("</s>", "<|endoftext|>", ...). BOS and EOS are added by default where the config says so; where it
/// says nothing, where the post-processor does (as transformers 5 has it). Marks these tokens as special in `spec`.
/// Error(format) for a BOS or EOS that the vocabulary lacks, Error(usage) if a post-processor adds anything else.
SpecialIds find_special_ids(const TokenizerConfig& config, const std::string& name, TokenizerSpec& spec);

}  // namespace keel
