#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "keel/tokenizer/pair_joiner.h"
#include "keel/tokenizer/sentencepiece_model.h"

namespace keel {

/// Byte pair encoding as sentencepiece does it: start from the characters, and as long as two neighbours joined make a
/// piece, join those of the highest score, of equal scores the leftmost. Characters without a piece become the pieces
/// of their bytes, or, without byte fallback, the unknown piece, once for a run of them.
///
/// Immutable after construction. O(n log n) in time, at most 60 bytes of memory a byte of text.
class BpeMerger {
 public:
  /// False for models with user-defined or unused pieces, and where text could spell a reserved piece: those take more
  /// rules than the above.
  static bool is_for(const SentencepieceModel& model);
  explicit BpeMerger(const SentencepieceModel& model);

  using Workspace = PairJoiner::Workspace;

  /// Appends the ids of a normalised text (UTF-8, spaces as U+2581, below 2^31 bytes). Returns how many of its bytes
  /// became the unknown piece.
  int64_t encode(std::string_view text, Workspace& workspace, std::vector<int32_t>& ids) const;

 private:
  static constexpr int32_t kNoPiece = PairJoiner::kNone;
  int32_t character_id(std::string_view character) const;
  void split(std::string_view text, Workspace& workspace) const;
  void append_character(std::string_view text, int32_t begin, std::vector<int32_t>& ids) const;

  int32_t pieces_ = 0;  // ids from here on stand for characters that occur in pieces but are none
  int32_t unknown_ = 0;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> byte_ids_{};
  std::array<int32_t, 128> ascii_ids_{};
  std::unordered_map<uint32_t, int32_t> character_ids_;  // by the bytes of the character
  PairJoiner joiner_;
};

}  // namespace keel
