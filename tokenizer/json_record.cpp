#include "keel/tokenizer/json_record.h"

#include <array>
#include <cstring>

#include "keel/base/utf8.h"

namespace keel {
namespace {

constexpr int kMaxDepth = 1024;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The value of the four hex digits at p, which are known to be there.
uint32_t hex4(const char* p) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 4 | static_cast<uint32_t>(hex_value(p[i]));
  return value;
}

// True if one of the 8 bytes is a quote, a backslash or a control character (exact for the lowest such byte).
bool has_string_stop(uint64_t bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kTops = 0x8080808080808080u;
  const auto zero_bytes = [&](uint64_t x) { return (x - kOnes) & ~x & kTops; };
  const uint64_t below_space = (bytes - kOnes * 0x20) & ~bytes & kTops;
  return (below_space | zero_bytes(bytes ^ kOnes * '"') | zero_bytes(bytes ^ kOnes * '\\')) != 0;
}

// First quote, backslash or control character at or after p, or end.
const char* find_string_stop(const char* p, const char* end) {
  while (end - p >= 8) {
    uint64_t bytes;
    std::memcpy(&bytes, p, 8);
    if (has_string_stop(bytes)) break;
    p += 8;
  }
  while (p < end && *p != '"' && *p != '\\' && static_cast<unsigned char>(*p) >= 0x20) ++p;
  return p;
}

// Past the string, bracket or scalar at p of well-formed JSON.
const char* skip_value(const char* p, const char* end) {
  int64_t depth = 0;
  do {
    if (*p == '"') {
      for (p = find_string_stop(p + 1, end); *p != '"'; p = find_string_stop(p + 2, end)) {
      }
      ++p;
    } else if (*p == '{' || *p == '[') {
      ++depth;
      ++p;
    } else if (*p == '}' || *p == ']') {
      --depth;
      ++p;
    } else if (depth > 0) {
      ++p;
    } else {
      while (p < end && !is_space(*p) && *p != ',' && *p != ']' && *p != '}') ++p;
    }
  } while (depth > 0);
  return p;
}

const char* skip_space(const char* p, const char* end) {
  while (p < end && is_space(*p)) ++p;
  return p;
}

JsonKind kind_of(char first) {
  switch (first) {
    case '"':
      return JsonKind::string;
    case '{':
      return JsonKind::object;
    case '[':
      return JsonKind::array;
    case 't':
    case 'f':
      return JsonKind::boolean;
    case 'n':
      return JsonKind::null;
    default:
      return JsonKind::number;
  }
}

std::string_view view(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::string_view describe(JsonKind kind) {
  switch (kind) {
    case JsonKind::missing:
      return "no value";
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "a boolean";
    case JsonKind::number:
      return "a number";
    case JsonKind::string:
      return "a string";
    case JsonKind::array:
      return "a list";
    case JsonKind::object:
      return "an object";
  }
  return "a value";
}

/// One pass over one record: a loop with an explicit stack of open brackets.
class JsonScan {
 public:
  JsonScan(JsonRecordScanner& scanner, std::string_view record)
      : scanner_(scanner), begin_(record.data()), p_(begin_), end_(begin_ + record.size()) {
    for (JsonField& field : scanner_.fields_) field = {};
    matched_.assign(scanner_.paths_.size(), 0);
    opened_.assign(scanner_.paths_.size(), 0);
    hits_.reserve(scanner_.paths_.size());
  }

  JsonFault run() {
    p_ = skip_space(p_, end_);
    if (p_ == end_) return {"the record is empty", 0};
    if (*p_ != '{') return {not_an_object(), p_ - begin_};
    open('{');
    while (depth_ > 0) {
      if (!(is_object() ? member() : element())) return fault_;
    }
    p_ = skip_space(p_, end_);
    if (p_ == end_) return {};
    if (*p_ == '{') {
      return {std::memchr(begin_, '\r', p_ - begin_) != nullptr
                  ? "two records on one line, separated by carriage returns alone"
                  : "two records on one line",
              p_ - begin_};
    }
    return {"characters after the record", p_ - begin_};
  }

 private:
  bool is_object() const { return open_[depth_ - 1] == '{'; }

  bool fail(const char* what, const char* at) {
    fault_ = {what, at - begin_, p_ >= end_};
    return false;
  }
  bool fail_cut(const char* at) {
    p_ = end_;
    return fail("a string is not closed", at);
  }
  bool fail_early() {
    p_ = end_;
    return fail("the record ends early", end_);
  }

  const char* not_an_object() const {
    switch (*p_) {
      case '[':
        return "the record is a list, not an object";
      case '"':
        return "the record is a string, not an object";
      default:
        break;
    }
    if (is_digit(*p_) || *p_ == '-') return "the record is a number, not an object";
    for (std::string_view word : {"true", "false", "null"}) {
      if (view(p_, end_).starts_with(word)) return "the record is a bare word, not an object";
    }
    return "not JSON";
  }

  void open(char bracket) {
    open_[depth_++] = bracket;
    first_ = true;
    ++p_;
  }

  // After the opening bracket or a value: a comma and the next value, or the closing bracket.
  bool next_or_close(char closing, bool& closed) {
    p_ = skip_space(p_, end_);
    if (p_ == end_) return fail_early();
    closed = *p_ == closing;
    if (closed) {
      ++p_;
      close();
      return true;
    }
    if (first_) {
      first_ = false;
      return true;
    }
    if (*p_ != ',') return fail(closing == '}' ? "expected ',' or '}'" : "expected ',' or ']'", p_);
    p_ = skip_space(p_ + 1, end_);
    return true;
  }

  void close() {
    for (size_t i = 0; i < matched_.size(); ++i) {
      if (opened_[i] == depth_) {
        scanner_.fields_[i].raw = view(scanner_.fields_[i].raw.data(), p_);
        opened_[i] = 0;
      }
      if (depth_ > 1 && matched_[i] == depth_ - 1) --matched_[i];
    }
    --depth_;
    first_ = false;
  }

  bool member() {
    bool closed = false;
    if (!next_or_close('}', closed) || closed) return fault_.what == nullptr;
    if (p_ == end_) return fail_early();
    if (*p_ != '"') return fail("expected a key in quotes", p_);
    const char* key = p_;
    if (!string()) return false;
    find_paths(view(key, p_));
    p_ = skip_space(p_, end_);
    if (p_ == end_) return fail_early();
    if (*p_ != ':') return fail("expected ':' after a key", p_);
    p_ = skip_space(p_ + 1, end_);
    return value();
  }

  bool element() {
    bool closed = false;
    if (!next_or_close(']', closed) || closed) return fault_.what == nullptr;
    hits_.clear();
    return value();
  }

  // hits_ = the paths whose next component is this key of the object now open.
  void find_paths(std::string_view quoted_key) {
    hits_.clear();
    std::string_view key = quoted_key.substr(1, quoted_key.size() - 2);
    std::string unescaped;
    for (size_t i = 0; i < matched_.size(); ++i) {
      const std::vector<std::string>& path = scanner_.paths_[i];
      if (matched_[i] != depth_ - 1 || depth_ > static_cast<int>(path.size())) continue;
      if (unescaped.empty() && key.find('\\') != std::string_view::npos) {
        append_json_string(quoted_key, unescaped);
        key = unescaped;
      }
      if (key != path[depth_ - 1]) continue;
      scanner_.fields_[i] = {};  // of a key that occurs twice the last one counts
      hits_.push_back(static_cast<int>(i));
    }
  }

  bool value() {
    if (p_ == end_) return fail_early();
    const char* begin = p_;
    const char first = *p_;
    if (first == '{' || first == '[') {
      if (depth_ == kMaxDepth) return fail("nested more than 1024 deep", p_);
      open(first);
      for (int i : hits_) {
        if (depth_ - 1 == static_cast<int>(scanner_.paths_[i].size())) {
          scanner_.fields_[i] = {kind_of(first), view(begin, p_)};
          opened_[i] = depth_;
        } else if (first == '{') {
          matched_[i] = depth_ - 1;
        }
      }
      return true;
    }
    if (!(first == '"' ? string() : scalar())) return false;
    for (int i : hits_) {
      if (depth_ == static_cast<int>(scanner_.paths_[i].size())) {
        scanner_.fields_[i] = {kind_of(first), view(begin, p_)};
      }
    }
    return true;
  }

  bool string() {
    const char* begin = p_++;
    for (;;) {
      p_ = find_string_stop(p_, end_);
      if (p_ == end_) return fail_cut(begin);
      if (*p_ == '"') break;
      if (*p_ != '\\') return fail("raw control character in a string", p_);
      if (!escape()) return false;
    }
    ++p_;
    return true;
  }

  bool escape() {
    if (end_ - p_ < 2) return fail_cut(p_);
    if (p_[1] == 'u') {
      for (int i = 2; i < 6; ++i) {
        if (p_ + i >= end_) return fail_cut(p_);
        if (hex_value(p_[i]) < 0) return fail("bad \\u escape in a string", p_);
      }
      p_ += 6;
      return true;
    }
    if (std::memchr("\"\\/bfnrt", p_[1], 8) == nullptr) return fail("bad escape in a string", p_);
    p_ += 2;
    return true;
  }

  bool scalar() {
    const char* begin = p_;
    for (std::string_view word : {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
      if (view(p_, end_).starts_with(word)) {
        p_ += word.size();
        return true;
      }
      if (word.starts_with(view(p_, end_))) return fail_early();
    }
    if (*p_ == '-') ++p_;
    if (!digits()) return fail("expected a value", begin);
    if (*(begin + (*begin == '-')) == '0' && p_ - begin > 1 + (*begin == '-')) {
      return fail("a number with a leading zero", begin);
    }
    if (p_ < end_ && *p_ == '.') {
      ++p_;
      if (!digits()) return fail("a number without digits after its point", begin);
    }
    if (p_ < end_ && (*p_ == 'e' || *p_ == 'E')) {
      ++p_;
      if (p_ < end_ && (*p_ == '+' || *p_ == '-')) ++p_;
      if (!digits()) return fail("a number without digits in its exponent", begin);
    }
    return true;
  }

  bool digits() {
    const char* begin = p_;
    while (p_ < end_ && is_digit(*p_)) ++p_;
    return p_ != begin;
  }

  JsonRecordScanner& scanner_;
  const char* begin_;
  const char* p_;
  const char* end_;
  JsonFault fault_;
  bool first_ = true;                 // no value yet in the innermost bracket
  int depth_ = 0;                     // open brackets; the record's own object is 1
  std::array<char, kMaxDepth> open_;  // NOLINT: written before it is read
  std::vector<int> matched_;          // components of each path that the chain of open objects has matched
  std::vector<int> opened_;           // depth of a path's own value while it is an open bracket, else 0
  std::vector<int> hits_;             // paths that the value to come belongs to
};

JsonRecordScanner::JsonRecordScanner(const std::vector<std::string>& paths) : fields_(paths.size()) {
  for (const std::string& path : paths) {
    std::vector<std::string>& parts = paths_.emplace_back();
    size_t begin = 0;
    for (size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
      parts.push_back(path.substr(begin, dot - begin));
    }
    parts.push_back(path.substr(begin));
  }
}

JsonFault JsonRecordScanner::scan(std::string_view record) {
  return JsonScan(*this, record).run();
}

int64_t append_json_string(std::string_view raw, std::string& text) {
  const char* p = raw.data() + 1;
  const char* end = raw.data() + raw.size() - 1;
  int64_t lone = 0;
  while (p < end) {
    const void* found = std::memchr(p, '\\', end - p);
    const char* stop = found == nullptr ? end : static_cast<const char*>(found);
    text.append(p, stop);
    if (stop == end) break;
    p = stop + 2;
    switch (stop[1]) {
      case 'b':
        text.push_back('\b');
        break;
      case 'f':
        text.push_back('\f');
        break;
      case 'n':
        text.push_back('\n');
        break;
      case 'r':
        text.push_back('\r');
        break;
      case 't':
        text.push_back('\t');
        break;
      case 'u': {
        uint32_t code = hex4(p);
        p += 4;
        const bool high = code >= 0xD800 && code < 0xDC00;
        const bool paired =
            high && end - p >= 6 && p[0] == '\\' && p[1] == 'u' && hex4(p + 2) >= 0xDC00 && hex4(p + 2) < 0xE000;
        if (paired) {
          code = 0x10000 + ((code - 0xD800) << 10) + (hex4(p + 2) - 0xDC00);
          p += 6;
        } else if (code >= 0xD800 && code < 0xE000) {
          code = 0xFFFD;
          ++lone;
        }
        append_utf8(text, code);
        break;
      }
      default:
        text.push_back(stop[1]);
    }
  }
  return lone;
}

std::vector<JsonField> json_elements(std::string_view raw) {
  std::vector<JsonField> elements;
  const char* end = raw.data() + raw.size();
  const char* p = skip_space(raw.data() + 1, end);
  while (*p != ']') {
    const char* begin = p;
    p = skip_value(p, end);
    elements.push_back({kind_of(*begin), view(begin, p)});
    p = skip_space(p, end);
    if (*p == ',') p = skip_space(p + 1, end);
  }
  return elements;
}

std::vector<std::string> json_keys(std::string_view raw, int64_t limit) {
  std::vector<std::string> keys;
  const char* end = raw.data() + raw.size();
  const char* p = skip_space(skip_space(raw.data(), end) + 1, end);
  while (*p != '}' && static_cast<int64_t>(keys.size()) < limit) {
    const char* key = p;
    p = skip_value(p, end);
    append_json_string(view(key, p), keys.emplace_back());
    p = skip_space(skip_space(p, end) + 1, end);
    p = skip_space(skip_value(p, end), end);
    if (*p == ',') p = skip_space(p + 1, end);
  }
  return keys;
}

}  // namespace keel
