#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "json_internal.h"

namespace keel::detail {
namespace {

/// Walks a text that is known to be valid JSON.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
    skip_space();
  }

  size_t at() const { return at_; }

  /// Moves from the object here to its member `name`; the key's offset, or nothing.
  std::optional<size_t> enter_member(const std::string& name) {
    if (text_[at_] != '{') return std::nullopt;
    next_token();
    while (text_[at_] != '}') {
      const size_t key_at = at_;
      skip_value();
      const std::string_view key = text_.substr(key_at, at_ - key_at);
      skip_space();
      next_token();  // the colon
      if (unescape(key) == name) return key_at;
      skip_value();
      skip_comma();
    }
    return std::nullopt;
  }

  /// Moves from the array here to its element; false if it has fewer.
  bool enter_element(int64_t index) {
    if (text_[at_] != '[') return false;
    next_token();
    for (; text_[at_] != ']'; --index) {
      if (index == 0) return true;
      skip_value();
      skip_comma();
    }
    return false;
  }

 private:
  static std::string unescape(std::string_view quoted) { return parse_json_text(quoted, 1).get<std::string>(); }

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  void next_token() {
    ++at_;
    skip_space();
  }

  void skip_comma() {
    skip_space();
    if (text_[at_] == ',') next_token();
  }

  void skip_string() {
    for (++at_; text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    ++at_;
  }

  void skip_value() {
    if (text_[at_] == '"') return skip_string();
    if (text_[at_] != '{' && text_[at_] != '[') {
      at_ = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
      return;
    }
    int64_t depth = 0;
    do {
      const char c = text_[at_];
      if (c == '"') {
        skip_string();
        continue;
      }
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++at_;
    } while (depth > 0);
  }

  std::string_view text_;
  size_t at_ = 0;
};

/// The first part of a pointer, unescaped; the rest stays.
std::string take_part(std::string_view& pointer) {
  pointer.remove_prefix(1);
  const size_t end = std::min(pointer.find('/'), pointer.size());
  std::string part;
  for (size_t i = 0; i < end; ++i) {
    const bool escaped = pointer[i] == '~' && i + 1 < end;
    part += !escaped ? pointer[i] : pointer[++i] == '1' ? '/' : '~';
  }
  pointer.remove_prefix(end);
  return part;
}

std::optional<int64_t> index_of(const std::string& part) {
  int64_t index = 0;
  const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (code != std::errc() || end != part.data() + part.size() || index < 0) return std::nullopt;
  return index;
}

}  // namespace

JsonPosition json_position(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t newline = before.rfind('\n');
  std::string_view line = newline == std::string_view::npos ? before : before.substr(newline + 1);
  if (newline == std::string_view::npos && line.substr(0, 3) == "\xEF\xBB\xBF") line.remove_prefix(3);
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return {std::count(before.begin(), before.end(), '\n') + 1,
          std::count_if(line.begin(), line.end(), begins_character) + 1};
}

JsonPlace find_in_json(std::string_view text, std::string_view pointer) {
  Walker walker(text);
  JsonPlace place;
  while (!pointer.empty() && pointer[0] == '/') {
    const std::string part = take_part(pointer);
    place.key = walker.enter_member(part);
    if (place.key) continue;
    const auto index = index_of(part);
    if (!index || !walker.enter_element(*index)) return {};
  }
  if (!pointer.empty()) return {};
  place.value = walker.at();
  return place;
}

}  // namespace keel::detail
