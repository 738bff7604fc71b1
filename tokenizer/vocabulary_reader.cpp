#include "keel/tokenizer/vocabulary_reader.h"

#include <fmt/core.h>

#include <limits>

#include "keel/base/error.h"
#include "keel/base/utf8.h"

namespace keel {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;
constexpr size_t kMaxMerges = size_t{1} << 25;
constexpr size_t kMaxShown = 40;

}  // namespace

std::string quoted_piece(std::string_view piece) {
  std::string text = "\"";
  for (size_t at = 0; at < piece.size();) {
    if (at >= kMaxShown) return text + "...\"";
    const size_t length = utf8_length(piece.substr(at));
    const auto byte = static_cast<unsigned char>(piece[at]);
    if (length == 0 || (length == 1 && (byte < 0x20 || byte == 0x7F))) {
      text += fmt::format("\\x{:02X}", byte);
      ++at;
    } else {
      text += piece.substr(at, length);
      at += length;
    }
  }
  return text + "\"";
}

VocabularyReader::VocabularyReader(const JsonNode& vocab) : vocab_(vocab) {
  for (const auto& [piece, value] : vocab.object()) {
    int64_t id = -1;
    if (value.get_int64().get(id) != simdjson::SUCCESS || id < 0 || id >= static_cast<int64_t>(kMaxTokens))
      fail("has no usable id for " + quoted_piece(piece));
    if (entries_.size() == kMaxTokens) fail(fmt::format("has more than {} pieces", kMaxTokens));
    entries_.push_back({piece, static_cast<int32_t>(id)});
    if (!ids_.emplace(piece, static_cast<int32_t>(id)).second) fail("has " + quoted_piece(piece) + " twice");
  }
}

std::optional<int32_t> VocabularyReader::find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void VocabularyReader::place(const std::vector<AddedToken>& added, TokenizerSpec& spec) const {
  std::vector<Entry> all = entries_;
  std::unordered_map<std::string_view, int32_t> seen;
  for (const AddedToken& token : added) {
    if (!seen.emplace(token.content, token.id).second) fail(quoted_piece(token.content) + " is added twice");
    const std::optional<int32_t> known = find(token.content);
    if (known && *known != token.id) {
      fail(fmt::format("has {} as {}, but it is added as {}", quoted_piece(token.content), *known, token.id));
    }
    if (!known) all.push_back({token.content, token.id});
  }
  const auto total = static_cast<int64_t>(all.size());
  if (total == 0) fail("is empty");
  std::vector<bool> taken(total, false);
  spec.pieces.assign(total, {});
  for (const Entry& entry : all) {
    if (entry.id < 0 || entry.id >= total) {
      fail(fmt::format("has a gap: there are {} tokens, but {} has the id {}", total, quoted_piece(entry.piece),
                       entry.id));
    }
    if (taken[entry.id]) {
      fail(fmt::format("has the id {} twice: {} and {}", entry.id, quoted_piece(spec.pieces[entry.id]),
                       quoted_piece(entry.piece)));
    }
    taken[entry.id] = true;
    spec.pieces[entry.id] = entry.piece;
  }
  spec.in_model.assign(total, false);
  for (const Entry& entry : entries_) spec.in_model[entry.id] = true;
  spec.added = added;
}

void VocabularyReader::add_merge(std::string_view left, std::string_view right, const std::string& where,
                                 TokenizerSpec& spec) const {
  const auto id_of = [&](std::string_view piece) {
    const std::optional<int32_t> id = find(piece);
    if (!id) fail("lacks " + quoted_piece(piece) + ", which " + where + " needs");
    return *id;
  };
  if (spec.merges.size() == kMaxMerges) fail(fmt::format("has more than {} merges", kMaxMerges));
  const int32_t left_id = id_of(left), right_id = id_of(right);
  std::string joined(left);
  joined += right;
  spec.merges.push_back({left_id, right_id, id_of(joined)});
}

}  // namespace keel
