#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace keel {

/// Bytes of the character that begins with this byte, in valid UTF-8.
inline size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The first character of valid UTF-8 that is not empty.
inline std::string_view first_character(std::string_view text) {
  return text.substr(0, character_bytes(text[0]));
}
std::string_view last_character(std::string_view text);
uint32_t code_point(std::string_view character);

/// The bytes of a character as a number.
uint32_t packed(std::string_view character);

/// Appends `text` with each `pattern` (not empty) replaced, from left to right. TextTooLong once `out` has more than
/// `most` bytes, found before they are written.
void append_replaced(std::string_view text, std::string_view pattern, std::string_view content, std::string& out,
                     size_t most);

/// Unicode's White_Space.
bool is_white_space(uint32_t code_point);
/// Letters, marks, digits, connectors and joiners: \w of Unicode's technical standard 18.
bool is_word_character(uint32_t code_point);

}  // namespace keel
