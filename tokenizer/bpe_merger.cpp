#include "keel/tokenizer/bpe_merger.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace keel {
namespace {

using PieceType = SentencepieceModel::PieceType;

constexpr size_t kFewSymbols = 32;

// Bytes of the character that begins with this byte.
size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, character_bytes(text[0]));
}

uint32_t packed(std::string_view character) {
  uint32_t bytes = 0;
  std::memcpy(&bytes, character.data(), std::min<size_t>(4, character.size()));
  return bytes;
}

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return pair ^ pair >> 32;
}

}  // namespace

bool BpeMerger::is_for(const SentencepieceModel& model) {
  if (model.type != SentencepieceModel::Type::bpe) return false;
  std::unordered_map<std::string_view, PieceType> normal;
  for (const SentencepieceModel::Piece& piece : model.pieces) {
    if (piece.type == PieceType::user_defined || piece.type == PieceType::unused) return false;
    if (piece.type == PieceType::normal) normal.emplace(piece.text, piece.type);
  }
  return std::none_of(model.pieces.begin(), model.pieces.end(), [&](const SentencepieceModel::Piece& piece) {
    return piece.type != PieceType::normal &&
           (normal.contains(piece.text) || first_character(piece.text).size() == piece.text.size());
  });
}

BpeMerger::BpeMerger(const SentencepieceModel& model)
    : pieces_(static_cast<int32_t>(model.pieces.size())), byte_fallback_(model.byte_fallback) {
  std::unordered_map<std::string_view, int32_t> ids;
  size_t splits = 0;
  for (int32_t id = 0; id < pieces_; ++id) {
    const SentencepieceModel::Piece& piece = model.pieces[id];
    scores_.push_back(piece.score);
    if (piece.type == PieceType::unknown) unknown_ = id;
    if (piece.type == PieceType::byte) byte_ids_[std::stoi(piece.text.substr(3, 2), nullptr, 16)] = id;
    if (piece.type != PieceType::normal) continue;
    ids.emplace(piece.text, id);
    splits += piece.text.size();
    if (first_character(piece.text).size() == piece.text.size()) character_ids_.emplace(packed(piece.text), id);
  }
  joins_.resize(std::bit_ceil(2 * splits + 2));
  int32_t characters = pieces_;
  const auto id_of = [&](std::string_view part) {
    if (const auto found = ids.find(part); found != ids.end()) return found->second;
    if (first_character(part).size() != part.size()) return kNoPiece;
    const auto [entry, is_new] = character_ids_.emplace(packed(part), characters);
    characters += is_new;
    return entry->second;
  };
  for (const auto& [text, id] : ids) {
    for (size_t at = first_character(text).size(); at < text.size(); at += character_bytes(text[at])) {
      const int32_t left = id_of(text.substr(0, at)), right = id_of(text.substr(at));
      if (left != kNoPiece && right != kNoPiece) add_join(left, right, id);
    }
  }
  ascii_ids_.fill(kNoPiece);
  for (const auto& [bytes, id] : character_ids_) {
    if (bytes < 0x80) ascii_ids_[bytes] = id;
  }
}

void BpeMerger::add_join(int32_t left, int32_t right, int32_t id) {
  const uint64_t pair = pair_of(left, right);
  size_t at = mix(pair) & (joins_.size() - 1);
  while (joins_[at].id != kNoPiece && joins_[at].pair != pair) at = (at + 1) & (joins_.size() - 1);
  joins_[at] = {pair, id};
}

int32_t BpeMerger::find_join(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return kNoPiece;
  const uint64_t pair = pair_of(left, right);
  size_t at = mix(pair) & (joins_.size() - 1);
  while (joins_[at].pair != pair) {
    if (joins_[at].id == kNoPiece) return kNoPiece;
    at = (at + 1) & (joins_.size() - 1);
  }
  return joins_[at].id;
}

int32_t BpeMerger::character_id(std::string_view character) const {
  if (character.size() == 1) return ascii_ids_[static_cast<unsigned char>(character[0]) & 0x7F];
  const auto found = character_ids_.find(packed(character));
  return found == character_ids_.end() ? kNoPiece : found->second;
}

void BpeMerger::encode(std::string_view text, Workspace& workspace, std::vector<int32_t>& ids) const {
  split(text, workspace);
  if (workspace.symbols_.size() <= kFewSymbols) {
    join_few(workspace);
  } else {
    join_many(workspace);
  }
  bool after_unknown = false;
  for (const Workspace::Symbol& symbol : workspace.symbols_) {
    if (symbol.id == kJoined) continue;
    const bool is_piece = symbol.id >= 0 && symbol.id < pieces_;
    if (is_piece) {
      ids.push_back(symbol.id);
    } else if (byte_fallback_) {
      append_character(text, symbol.begin, ids);
    } else if (!after_unknown) {
      ids.push_back(unknown_);
    }
    after_unknown = !is_piece;
  }
}

void BpeMerger::append_character(std::string_view text, int32_t begin, std::vector<int32_t>& ids) const {
  for (char byte : first_character(text.substr(begin))) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
}

void BpeMerger::split(std::string_view text, Workspace& workspace) const {
  workspace.symbols_.clear();
  for (size_t at = 0; at < text.size(); at += character_bytes(text[at])) {
    const auto position = static_cast<int32_t>(workspace.symbols_.size());
    workspace.symbols_.push_back(
        {character_id(first_character(text.substr(at))), static_cast<int32_t>(at), position - 1, position + 1});
  }
  if (!workspace.symbols_.empty()) workspace.symbols_.back().next = -1;
}

// Keeps the symbols dense and looks through all of them for the best pair: quickest for a word.
void BpeMerger::join_few(Workspace& workspace) const {
  std::vector<Workspace::Symbol>& symbols = workspace.symbols_;
  std::vector<int32_t>& joined = workspace.joined_;
  const auto look = [&](size_t at) {
    joined[at] = at + 1 < symbols.size() ? find_join(symbols[at].id, symbols[at + 1].id) : kNoPiece;
  };
  joined.resize(symbols.size());
  for (size_t at = 0; at < symbols.size(); ++at) look(at);
  for (;;) {
    size_t best = symbols.size();
    for (size_t at = 0; at < symbols.size(); ++at) {
      const bool better =
          joined[at] != kNoPiece && (best == symbols.size() || scores_[joined[at]] > scores_[joined[best]]);
      if (better) best = at;
    }
    if (best == symbols.size()) return;
    symbols[best].id = joined[best];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    joined.erase(joined.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    look(best);
    if (best > 0) look(best - 1);
  }
}

void BpeMerger::push(Workspace& workspace, int32_t left) const {
  if (left < 0) return;
  const Workspace::Symbol& symbol = workspace.symbols_[left];
  if (symbol.next < 0) return;
  const int32_t right_id = workspace.symbols_[symbol.next].id;
  const int32_t joined = find_join(symbol.id, right_id);
  if (joined == kNoPiece) return;
  workspace.heap_.push_back({scores_[joined], left, symbol.id, right_id, joined});
  std::push_heap(workspace.heap_.begin(), workspace.heap_.end());
}

void BpeMerger::join_many(Workspace& workspace) const {
  std::vector<Workspace::Symbol>& symbols = workspace.symbols_;
  std::vector<Workspace::Candidate>& heap = workspace.heap_;
  heap.clear();
  for (size_t at = 0; at < symbols.size(); ++at) push(workspace, static_cast<int32_t>(at));
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Workspace::Candidate best = heap.back();
    heap.pop_back();
    Workspace::Symbol& left = symbols[best.left];
    // An id only ever changes to that of a longer piece, so equal ids are the same two symbols.
    if (left.id != best.left_id || left.next < 0 || symbols[left.next].id != best.right_id) continue;
    Workspace::Symbol& right = symbols[left.next];
    left.id = best.joined_id;
    left.next = right.next;
    right.id = kJoined;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    push(workspace, left.previous);
    push(workspace, best.left);
  }
}

}  // namespace keel
