#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "keel/tokenizer/pair_joiner.h"
#include "keel/tokenizer/tokenizer_spec.h"

namespace keel {

/// Byte pair encoding as the `tokenizers` crate does it: a word starts as its characters (byte-level: its bytes), and
/// neighbours are joined by the merges, the earliest in the list first. A character without a piece becomes the pieces
/// of its bytes ("<0x0A>") with byte fallback, else the unknown piece, else nothing.
///
/// Immutable. O(n log n) in time, at most 60 bytes of memory a byte of a word.
class BpeModel {
 public:
  BpeModel(const TokenizerSpec& spec, bool byte_level);

  using Workspace = PairJoiner::Workspace;

  /// Appends the ids of a word: valid UTF-8, less than 2^31 bytes. Returns how many of its bytes became the unknown
  /// piece or nothing.
  int64_t encode(std::string_view word, Workspace& workspace, std::vector<int32_t>& ids) const;

  /// With ignore_merges, the id of a word that is a piece as a whole.
  std::optional<int32_t> whole_piece(std::string_view word) const;

  /// The first place after `at` where a word can be cut without any effect on its ids: no piece holds the characters on
  /// both sides next to each other. word.size() if there is none.
  size_t find_cut(std::string_view word, size_t at) const;
  bool may_cut() const { return may_cut_; }

 private:
  // Characters as far as cutting tells them apart: ASCII, U+2581, and all others.
  static constexpr int kMark = 128, kOther = 129, kClasses = 130;
  static int class_of(std::string_view text, size_t at);

  int64_t split(std::string_view word, Workspace& workspace) const;
  bool add_fallback(std::string_view character, size_t at, Workspace& workspace) const;
  int32_t character_id(std::string_view character) const;
  void learn_pieces(const TokenizerSpec& spec);
  void learn_cuts(const TokenizerSpec& spec);

  bool byte_level_ = false;
  bool ignore_merges_ = false;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool may_cut_ = false;
  std::optional<int32_t> unknown_;
  std::array<int32_t, 256> alphabet_ids_;  // of bytes in the spelling of byte-level vocabularies
  std::array<int32_t, 256> fallback_ids_;  // of "<0x0A>"
  std::array<int32_t, 128> ascii_ids_;     // of one-character pieces
  std::unordered_map<uint32_t, int32_t> character_ids_;
  std::unordered_map<std::string, int32_t> whole_;  // with ignore_merges, by what a word would have
  PairJoiner joiner_;
  std::array<std::bitset<kClasses>, kClasses> inside_;  // pairs that some piece holds
};

}  // namespace keel
