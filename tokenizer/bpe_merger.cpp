#include "keel/tokenizer/bpe_merger.h"

#include <algorithm>
#include <functional>
#include <string>

#include "keel/tokenizer/unicode.h"

namespace keel {
namespace {

using PieceType = SentencepieceModel::PieceType;

// Equal scores have equal ranks, the highest score has 0.
std::vector<float> scores_by_rank(const SentencepieceModel& model) {
  std::vector<float> scores;
  for (const SentencepieceModel::Piece& piece : model.pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  return scores;
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
    if (piece.type == PieceType::unknown) unknown_ = id;
    if (piece.type == PieceType::byte) byte_ids_[std::stoi(piece.text.substr(3, 2), nullptr, 16)] = id;
    if (piece.type != PieceType::normal) continue;
    ids.emplace(piece.text, id);
    splits += piece.text.size();
    if (first_character(piece.text).size() == piece.text.size()) character_ids_.emplace(packed(piece.text), id);
  }
  joiner_ = PairJoiner(splits);
  const std::vector<float> scores = scores_by_rank(model);
  int32_t characters = pieces_;
  const auto id_of = [&](std::string_view part) {
    if (const auto found = ids.find(part); found != ids.end()) return found->second;
    if (first_character(part).size() != part.size()) return kNoPiece;
    const auto [entry, is_new] = character_ids_.emplace(packed(part), characters);
    characters += is_new;
    return entry->second;
  };
  for (const auto& [text, id] : ids) {
    const auto rank = std::lower_bound(scores.begin(), scores.end(), model.pieces[id].score, std::greater<>());
    for (size_t at = first_character(text).size(); at < text.size(); at += character_bytes(text[at])) {
      const int32_t left = id_of(text.substr(0, at)), right = id_of(text.substr(at));
      if (left != kNoPiece && right != kNoPiece)
        joiner_.add(left, right, id, static_cast<int32_t>(rank - scores.begin()));
    }
  }
  ascii_ids_.fill(kNoPiece);
  for (const auto& [bytes, id] : character_ids_) {
    if (bytes < 0x80) ascii_ids_[bytes] = id;
  }
}

int32_t BpeMerger::character_id(std::string_view character) const {
  if (character.size() == 1) return ascii_ids_[static_cast<unsigned char>(character[0]) & 0x7F];
  const auto found = character_ids_.find(packed(character));
  return found == character_ids_.end() ? kNoPiece : found->second;
}

int64_t BpeMerger::encode(std::string_view text, Workspace& workspace, std::vector<int32_t>& ids) const {
  split(text, workspace);
  joiner_.join(workspace);
  bool after_unknown = false;
  int64_t lost = 0;
  for (const PairJoiner::Symbol& symbol : workspace.symbols()) {
    if (symbol.id == PairJoiner::kJoined) continue;
    const bool is_piece = symbol.id >= 0 && symbol.id < pieces_;
    if (is_piece) {
      ids.push_back(symbol.id);
    } else if (byte_fallback_) {
      append_character(text, symbol.begin, ids);
    } else {
      lost += static_cast<int64_t>(first_character(text.substr(symbol.begin)).size());
      if (!after_unknown) ids.push_back(unknown_);
    }
    after_unknown = !is_piece;
  }
  return lost;
}

void BpeMerger::append_character(std::string_view text, int32_t begin, std::vector<int32_t>& ids) const {
  for (char byte : first_character(text.substr(begin))) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
}

void BpeMerger::split(std::string_view text, Workspace& workspace) const {
  workspace.clear();
  for (size_t at = 0; at < text.size(); at += character_bytes(text[at])) {
    workspace.add(character_id(first_character(text.substr(at))), static_cast<int32_t>(at));
  }
}

}  // namespace keel
