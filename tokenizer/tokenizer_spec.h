#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace keel {

inline constexpr size_t kMaxAddedTokenBytes = 1024;

/// A token that is looked for in the text before anything is split or merged.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      ///< control token: in documents its text is text like any other
  bool single_word = false;  ///< only between characters that are no letters or digits
  bool lstrip = false;       ///< takes the white space in front of it along
  bool rstrip = false;
  bool normalized = false;  ///< looked for in the normalised text, itself normalised
};

struct NormalizerStep {
  enum class Kind { prepend, replace, nfc, nfd, nfkc, nfkd };
  Kind kind;
  std::string pattern;  // replace
  std::string content;  // replace, prepend
};

struct PreTokenizerStep {
  enum class Kind { split, byte_level, metaspace };
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  enum class Prepend { never, first, always };
  Kind kind;
  std::string pattern;    // split: a regular expression
  bool inverted = false;  // split
  Behavior behavior = Behavior::isolated;
  bool add_prefix_space = false;  // byte_level
  std::string replacement;        // metaspace
  Prepend prepend = Prepend::never;
  bool split = true;
};

/// What is done to the pieces of ids to give text.
struct DecoderRules {
  bool byte_level = false;
  std::vector<std::pair<std::string, std::string>> replacements;  ///< in each piece, before bytes
  bool byte_fallback = false;
  std::string metaspace;          ///< becomes a space; "" for none
  bool metaspace_prefix = false;  ///< and goes away in the first piece
  std::string strip;              ///< a character that goes away at the start of the text
  int64_t strip_most = 0;         ///< that often at most
};

struct MergeRule {
  int32_t left, right, joined;
};

/// What a tokenizer.json, or a vocab.json with its merges.txt, asks for; ids are checked.
struct TokenizerSpec {
  std::vector<std::string> pieces;  ///< by id, those of added tokens included
  std::vector<bool> in_model;       ///< by id: the merging model knows it
  std::vector<MergeRule> merges;    ///< by rank
  std::optional<int32_t> unknown;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  DecoderRules decoder;
  bool has_post_processor = false;
  std::vector<int32_t> prefix, suffix;  ///< what the post-processor puts around a text

  std::optional<int32_t> find_added(const std::string& content) const {
    for (const AddedToken& token : added) {
      if (token.content == content) return token.id;
    }
    return std::nullopt;
  }
};

}  // namespace keel
