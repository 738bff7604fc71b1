#include "keel/tokenizer/added_tokens.h"

#include <algorithm>

#include "keel/tokenizer/unicode.h"

namespace keel {
namespace {

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_character(code_point(last_character(text.substr(0, begin))))) return false;
  return end == text.size() || !is_word_character(code_point(first_character(text.substr(end))));
}

size_t white_space_begin(std::string_view text, size_t least, size_t end) {
  while (end > least) {
    const std::string_view character = last_character(text.substr(0, end));
    if (!is_white_space(code_point(character))) break;
    end -= character.size();
  }
  return end;
}

size_t white_space_end(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const std::string_view character = first_character(text.substr(begin));
    if (!is_white_space(code_point(character))) break;
    begin += character.size();
  }
  return begin;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1) {
  for (size_t index = 0; index < tokens_.size(); ++index) {
    const AddedToken& token = tokens_[index];
    if (token.content.empty()) continue;
    only_special_ = only_special_ && token.special;
    int32_t node = 0;
    for (char c : token.content) {
      const auto byte = static_cast<unsigned char>(c);
      const auto [child, is_new] =
          children_.try_emplace(static_cast<uint64_t>(node) << 8 | byte, static_cast<int32_t>(nodes_.size()));
      if (is_new) {
        nodes_.emplace_back();
        if (node == 0) {
          roots_[byte] = child->second;
          only_beginning_ = c;
          ++beginnings_;
        }
      }
      node = child->second;
    }
    if (nodes_[node].token == kNoToken) nodes_[node].token = static_cast<int32_t>(index);
  }
}

std::pair<int32_t, size_t> AddedTokens::longest_at(std::string_view text, size_t at) const {
  std::pair<int32_t, size_t> longest{kNoToken, at};
  int32_t node = roots_[static_cast<unsigned char>(text[at])];
  while (node != 0) {
    ++at;
    if (nodes_[node].token != kNoToken) longest = {nodes_[node].token, at};
    if (at == text.size()) break;
    const auto child = children_.find(static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(text[at]));
    node = child == children_.end() ? 0 : child->second;
  }
  return longest;
}

size_t AddedTokens::find_beginning(std::string_view text, size_t at) const {
  if (beginnings_ == 1) return std::min(text.find(only_beginning_, at), text.size());
  while (at < text.size() && roots_[static_cast<unsigned char>(text[at])] == 0) ++at;
  return at;
}

void AddedTokens::split(std::string_view text, bool special, std::vector<Piece>& pieces) const {
  pieces.clear();
  size_t done = 0, space_end = 0;
  const bool searches = beginnings_ > 0 && (special || !only_special_);
  for (size_t at = searches ? find_beginning(text, 0) : text.size(); at < text.size(); at = find_beginning(text, at)) {
    const auto [index, match_end] = longest_at(text, at);
    if (index == kNoToken) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[index];
    size_t begin = at, end = match_end;
    at = match_end;
    if ((token.special && !special) || (token.single_word && !stands_alone(text, begin, end))) continue;
    if (token.lstrip) begin = std::max(white_space_begin(text, done, begin), done);
    if (token.rstrip) {
      if (end >= space_end) space_end = white_space_end(text, end);  // else that run of spaces is known
      end = space_end;
    }
    if (done < begin) pieces.push_back({done, begin, kText});
    pieces.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({done, text.size(), kText});
}

}  // namespace keel
