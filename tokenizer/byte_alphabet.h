#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace keel {

/// The spelling of bytes in byte-level vocabularies (GPT-2): printable Latin-1 stands for itself, the other 68 bytes
/// are U+0100 .. U+0143 in the order of their values.
class ByteAlphabet {
 public:
  static const ByteAlphabet& get();

  const std::string& character(unsigned char byte) const { return characters_[byte]; }
  /// The byte that a code point stands for, -1 if none.
  int byte_of(uint32_t code_point) const { return code_point < 0x144 ? bytes_[code_point] : -1; }
  /// Appends the bytes that a piece stands for, or, if some character of it stands for none, the piece as it is.
  void append_bytes(std::string_view piece, std::string& out) const;

 private:
  ByteAlphabet();
  std::array<std::string, 256> characters_;
  std::array<int16_t, 0x144> bytes_;
};

}  // namespace keel
