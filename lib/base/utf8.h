#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "keel/base/export.h"

namespace keel {

/// Bytes of the code point at the start of the text: 1 to 4, 0 if it is not valid UTF-8 (overlong, surrogate, beyond
/// U+10FFFF, cut off) or if there is none.
constexpr size_t utf8_length(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xC2 && first < 0xE0   ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
      (first == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

/// Appends a code point (at most U+10FFFF).
inline void append_utf8(std::string& out, uint32_t code_point) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

/// The text as one line that steers no terminal: control characters and bytes that are not UTF-8 become \n, \t, \r,
/// \x1b, \u009b. Backslashes stay, so that doing it twice changes nothing.
KEEL_API std::string one_line(std::string_view text);

/// The text with each byte that is not part of valid UTF-8 replaced by U+FFFD.
KEEL_API std::string replace_invalid_utf8(std::string_view text);

/// Error(usage) unless the path is UTF-8: what JSON records of another would lead nowhere. `what` begins the message:
/// "--out".
KEEL_API void require_utf8_path(std::string_view what, std::string_view path);

}  // namespace keel
