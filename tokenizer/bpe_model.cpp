#include "keel/tokenizer/bpe_model.h"

#include <fmt/core.h>

#include <algorithm>

#include "keel/tokenizer/byte_alphabet.h"
#include "keel/tokenizer/unicode.h"

namespace keel {
namespace {

constexpr int32_t kNoPiece = PairJoiner::kNone;
constexpr std::string_view kMarkText = "\xE2\x96\x81";  // U+2581

}  // namespace

BpeModel::BpeModel(const TokenizerSpec& spec, bool byte_level)
    : byte_level_(byte_level),
      ignore_merges_(spec.ignore_merges),
      fuse_unknown_(spec.fuse_unknown),
      byte_fallback_(spec.byte_fallback),
      unknown_(spec.unknown),
      joiner_(spec.merges.size()) {
  learn_pieces(spec);
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const MergeRule& rule = spec.merges[rank];
    joiner_.add(rule.left, rule.right, rule.joined, static_cast<int32_t>(rank));
  }
  if (!byte_level_) learn_cuts(spec);
}

void BpeModel::learn_pieces(const TokenizerSpec& spec) {
  alphabet_ids_.fill(kNoPiece);
  fallback_ids_.fill(kNoPiece);
  ascii_ids_.fill(kNoPiece);
  std::unordered_map<std::string_view, int32_t*> byte_pieces;
  std::array<std::string, 256> fallbacks;
  for (int byte = 0; byte < 256; ++byte) {
    fallbacks[byte] = fmt::format("<0x{:02X}>", byte);
    byte_pieces.emplace(fallbacks[byte], &fallback_ids_[byte]);
    byte_pieces.emplace(ByteAlphabet::get().character(static_cast<unsigned char>(byte)), &alphabet_ids_[byte]);
  }
  for (size_t index = 0; index < spec.pieces.size(); ++index) {
    const std::string& piece = spec.pieces[index];
    const auto id = static_cast<int32_t>(index);
    if (!spec.in_model[index] || piece.empty()) continue;
    if (const auto byte = byte_pieces.find(piece); byte != byte_pieces.end()) *byte->second = id;
    if (first_character(piece).size() == piece.size()) character_ids_.emplace(packed(piece), id);
    if (piece.size() == 1) ascii_ids_[static_cast<unsigned char>(piece[0]) & 0x7F] = id;
    if (!ignore_merges_) continue;
    std::string word;
    if (byte_level_) {
      ByteAlphabet::get().append_bytes(piece, word);
      // A piece with characters outside the alphabet is never spelt by a word.
      std::string spelling;
      for (char c : word) spelling += ByteAlphabet::get().character(static_cast<unsigned char>(c));
      if (spelling != piece) continue;
    } else {
      word = piece;
    }
    whole_.emplace(std::move(word), id);
  }
}

int BpeModel::class_of(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return byte;
  return text.substr(at).starts_with(kMarkText) ? kMark : kOther;
}

// Cutting is exact where every merge spells what it joins, and where no unknown piece can come of a character: runs of
// them are one.
void BpeModel::learn_cuts(const TokenizerSpec& spec) {
  const bool no_unknown = byte_fallback_ && std::count(fallback_ids_.begin(), fallback_ids_.end(), kNoPiece) == 0;
  const auto is_character = [&](int32_t id) {
    const bool is_byte = std::find(fallback_ids_.begin(), fallback_ids_.end(), id) != fallback_ids_.end();
    return !is_byte && id != unknown_;
  };
  may_cut_ = no_unknown;
  for (const MergeRule& rule : spec.merges) {
    if (!may_cut_) return;
    const size_t left = spec.pieces[rule.left].size(), right = spec.pieces[rule.right].size();
    // Only short pieces can be those of bytes.
    if ((left == 6 && !is_character(rule.left)) || (right == 6 && !is_character(rule.right)) || rule.left == unknown_ ||
        rule.right == unknown_) {
      may_cut_ = false;
    }
    const std::string& piece = spec.pieces[rule.joined];
    for (size_t at = 0, next; at < piece.size(); at = next) {
      next = at + character_bytes(piece[at]);
      if (next < piece.size()) inside_[class_of(piece, at)].set(class_of(piece, next));
    }
  }
}

size_t BpeModel::find_cut(std::string_view word, size_t at) const {
  for (size_t next; at < word.size(); at = next) {
    next = at + character_bytes(word[at]);
    if (next >= word.size() || !inside_[class_of(word, at)][class_of(word, next)]) return std::min(next, word.size());
  }
  return word.size();
}

std::optional<int32_t> BpeModel::whole_piece(std::string_view word) const {
  if (!ignore_merges_) return std::nullopt;
  const auto found = whole_.find(std::string(word));
  return found == whole_.end() ? std::nullopt : std::optional(found->second);
}

int64_t BpeModel::encode(std::string_view word, Workspace& workspace, std::vector<int32_t>& ids) const {
  const int64_t lost = split(word, workspace);
  joiner_.join(workspace);
  for (const PairJoiner::Symbol& symbol : workspace.symbols()) {
    if (symbol.id != PairJoiner::kJoined) ids.push_back(symbol.id);
  }
  return lost;
}

int32_t BpeModel::character_id(std::string_view character) const {
  if (character.size() == 1) return ascii_ids_[static_cast<unsigned char>(character[0]) & 0x7F];
  const auto found = character_ids_.find(packed(character));
  return found == character_ids_.end() ? kNoPiece : found->second;
}

bool BpeModel::add_fallback(std::string_view character, size_t at, Workspace& workspace) const {
  if (!byte_fallback_) return false;
  const auto id_of = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(character.begin(), character.end(), [&](char byte) { return id_of(byte) == kNoPiece; })) return false;
  for (char byte : character) workspace.add(id_of(byte), static_cast<int32_t>(at));
  return true;
}

int64_t BpeModel::split(std::string_view word, Workspace& workspace) const {
  workspace.clear();
  int64_t unknown_at = -1, lost = 0;
  const auto end_unknown = [&] {
    if (unknown_at >= 0) workspace.add(*unknown_, static_cast<int32_t>(unknown_at));
    unknown_at = -1;
  };
  for (size_t at = 0, next; at < word.size(); at = next) {
    next = at + (byte_level_ ? 1 : character_bytes(word[at]));
    std::string_view character = word.substr(at, next - at);
    const auto byte = static_cast<unsigned char>(word[at]);
    const int32_t id = byte_level_ ? alphabet_ids_[byte] : character_id(character);
    if (id != kNoPiece) {
      end_unknown();
      workspace.add(id, static_cast<int32_t>(at));
      continue;
    }
    if (byte_level_) character = ByteAlphabet::get().character(byte);
    // An unknown piece that waits comes after the bytes of a fallback, as in the crate.
    if (add_fallback(character, at, workspace)) continue;
    lost += static_cast<int64_t>(next - at);
    if (!unknown_ || (fuse_unknown_ && unknown_at >= 0)) continue;
    end_unknown();
    unknown_at = static_cast<int64_t>(at);
  }
  end_unknown();
  return lost;
}

}  // namespace keel
