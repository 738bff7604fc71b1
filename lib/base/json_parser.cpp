#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "json_internal.h"
#include "keel/base/utf8.h"

namespace keel::detail {
namespace {

/// Recursive descent over the text; a value at a time, its children collected first so that large objects and arrays
/// are built in linear time.
class Parser {
 public:
  Parser(std::string_view text, int depth) : text_(text), depth_left_(depth) {}

  Json document() {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
    skip_space();
    if (at_ == text_.size()) fail("empty JSON text");
    Json value = parse_value();
    skip_space();
    if (at_ != text_.size()) fail("text after the end of the JSON value");
    return value;
  }

 private:
  [[noreturn]] void fail(std::string what) const { throw JsonSyntaxError{std::move(what), at_}; }
  [[noreturn]] void fail_at(size_t offset, std::string what) const { throw JsonSyntaxError{std::move(what), offset}; }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  /// What stands here, for messages.
  std::string found() const {
    if (at_ >= text_.size()) return "the end of the text";
    const unsigned char c = static_cast<unsigned char>(text_[at_]);
    if (c < 0x20 || c == 0x7F) return "a control character";
    const size_t length = utf8_length(text_.substr(at_));
    return length == 0 ? "a byte that is not UTF-8" : "'" + std::string(text_.substr(at_, length)) + "'";
  }

  Json parse_value() {
    switch (peek()) {
      case '{':
        return parse_object();
      case '[':
        return parse_array();
      case '"':
        return parse_string();
      case 't':
        return parse_word("true", true);
      case 'f':
        return parse_word("false", false);
      case 'n':
        return parse_word("null", nullptr);
      default:
        break;
    }
    if (peek() == '-' || (peek() >= '0' && peek() <= '9')) return parse_number();
    if (text_.substr(at_, 3) == "NaN" || text_.substr(at_, 8) == "Infinity") fail("NaN and Infinity are not JSON");
    if (peek() == '/') fail("comments are not JSON");
    if (peek() == '\'') fail("text stands in double quotes");
    fail("expected a value, found " + found());
  }

  template <class T>
  Json parse_word(std::string_view word, T value) {
    if (text_.substr(at_, word.size()) != word) fail("expected a value, found " + found());
    at_ += word.size();
    return value;
  }

  void enter() {
    if (--depth_left_ < 0) fail("arrays and objects nested too deeply");
    ++at_;
    skip_space();
  }

  void leave() {
    ++depth_left_;
    ++at_;
  }

  /// After an element: true if another one follows.
  bool separator(char close, size_t open_at) {
    skip_space();
    if (peek() == ',') {
      ++at_;
      skip_space();
      if (peek() == close) fail("a comma before the closing bracket");
      return true;
    }
    if (peek() == close) return false;
    if (at_ >= text_.size()) {
      const JsonPosition open = json_position(text_, open_at);
      fail(std::string("the text ends inside the ") + (close == '}' ? "object" : "array") + " of line " +
           std::to_string(open.line));
    }
    fail(std::string("expected ',' or '") + close + "', found " + found());
  }

  Json parse_array() {
    const size_t open_at = at_;
    std::vector<Json> items;
    enter();
    if (peek() != ']') {
      do {
        items.push_back(parse_value());
      } while (separator(']', open_at));
    }
    leave();
    return items;
  }

  Json parse_object() {
    const size_t open_at = at_;
    std::vector<std::pair<std::string, Json>> members;
    std::unordered_set<std::string> names;
    enter();
    if (peek() != '}') {
      do {
        const size_t key_at = at_;
        if (peek() != '"') fail("expected a key in double quotes, found " + found());
        std::string key = parse_string();
        if (!names.insert(key).second) fail_at(key_at, "key '" + key + "' occurs twice");
        skip_space();
        if (peek() != ':') fail("expected ':' after the key, found " + found());
        ++at_;
        skip_space();
        members.emplace_back(std::move(key), parse_value());
      } while (separator('}', open_at));
    }
    leave();
    Json object = Json::object();
    auto& entries = object.get_ref<Json::object_t&>();
    entries.reserve(members.size());
    for (auto& [key, value] : members)
      static_cast<Json::object_t::Container&>(entries).emplace_back(std::move(key), std::move(value));
    return object;
  }

  std::string parse_string() {
    const size_t open_at = at_++;
    std::string out;
    for (;;) {
      const size_t run = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20) {
        const size_t length = utf8_length(text_.substr(at_));
        if (length == 0) fail("bytes that are not UTF-8");
        at_ += length;
      }
      out.append(text_.substr(run, at_ - run));
      if (at_ >= text_.size()) fail_at(open_at, "text without a closing quote");
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return out;
      }
      if (c == '\n' || c == '\r') fail_at(open_at, "text without a closing quote");
      if (c != '\\') fail("a control character inside a text");
      parse_escape(out);
    }
  }

  void parse_escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    const size_t start = at_++;
    if (peek() == 'u' && at_ < text_.size()) {
      append_utf8(out, parse_code_point(start));
      return;
    }
    const size_t which = at_ < text_.size() ? kNames.find(text_[at_]) : std::string_view::npos;
    if (which == std::string_view::npos) fail_at(start, "unknown escape in a text");
    out.push_back(kValues[which]);
    ++at_;
  }

  /// at_ stands on the 'u' of \uXXXX; a surrogate pair takes two of them.
  uint32_t parse_code_point(size_t start) {
    const uint32_t first = parse_hex4(start);
    if (first < 0xD800 || first > 0xDFFF) return first;
    if (first < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      ++at_;
      const uint32_t second = parse_hex4(start);
      if (second >= 0xDC00 && second <= 0xDFFF) return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    }
    fail_at(start, "half of a surrogate pair");
  }

  uint32_t parse_hex4(size_t start) {
    ++at_;
    uint32_t value = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (code != std::errc() || digits.size() != 4 || end != digits.data() + 4)
      fail_at(start, "unknown escape in a text");
    at_ += 4;
    return value;
  }

  bool skip_digits() {
    const size_t before = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ != before;
  }

  Json parse_number() {
    const size_t start = at_;
    if (peek() == '-') ++at_;
    if (text_.substr(at_, 8) == "Infinity") fail_at(start, "NaN and Infinity are not JSON");
    const size_t digits_at = at_;
    if (!skip_digits()) fail_at(start, "a number without digits");
    if (text_[digits_at] == '0' && at_ - digits_at > 1) fail_at(start, "a number with leading zeros");
    bool whole = true;
    if (peek() == '.') {
      whole = false;
      ++at_;
      if (!skip_digits()) fail_at(start, "a number without digits after the point");
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!skip_digits()) fail_at(start, "a number without digits in its exponent");
    }
    return number(text_.substr(start, at_ - start), whole, start);
  }

  Json number(std::string_view token, bool whole, size_t start) const {
    const char* begin = token.data();
    const char* end = begin + token.size();
    if (whole && token[0] == '-') {
      int64_t value = 0;
      if (std::from_chars(begin, end, value).ec == std::errc() && value != 0) return value;
    } else if (whole) {
      uint64_t value = 0;
      if (std::from_chars(begin, end, value).ec == std::errc()) return value;
    }
    double value = 0;
    const std::errc code = std::from_chars(begin, end, value).ec;
    if (code == std::errc::result_out_of_range && is_tiny(token)) return token[0] == '-' ? -0.0 : 0.0;
    if (code != std::errc() || !std::isfinite(value)) fail_at(start, "a number beyond the range of double");
    return value;
  }

  /// Of a number out of range: too small rather than too large. Its decimal exponent, point included, tells.
  static bool is_tiny(std::string_view token) {
    const size_t mark = token.find_first_of("eE");
    const std::string_view mantissa = token.substr(0, mark);
    const size_t point = std::min(mantissa.find('.'), mantissa.size());
    const size_t first = mantissa.find_first_of("123456789");
    if (first == std::string_view::npos) return true;
    if (mark == std::string_view::npos) return first > point;
    const bool negative = token[mark + 1] == '-';
    int64_t exponent = 0;
    const size_t digits = token.find_first_of("0123456789", mark);
    if (std::from_chars(token.data() + digits, token.data() + token.size(), exponent).ec != std::errc())
      return negative;
    const int64_t leading = static_cast<int64_t>(point) - static_cast<int64_t>(first);
    return leading + (negative ? -exponent : exponent) < 0;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_left_;
};

}  // namespace

Json parse_json_text(std::string_view text, int depth) {
  return Parser(text, depth).document();
}

}  // namespace keel::detail
