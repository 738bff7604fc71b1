#include "keel/tokenizer/byte_alphabet.h"

#include "keel/base/utf8.h"
#include "keel/tokenizer/unicode.h"

namespace keel {

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const uint32_t spelling = printable ? byte : next++;
    append_utf8(characters_[byte], spelling);
    bytes_[spelling] = static_cast<int16_t>(byte);
  }
}

void ByteAlphabet::append_bytes(std::string_view piece, std::string& out) const {
  const size_t before = out.size();
  for (size_t at = 0; at < piece.size(); at += character_bytes(piece[at])) {
    const int byte = byte_of(code_point(first_character(piece.substr(at))));
    if (byte < 0) {
      out.resize(before);
      out += piece;
      return;
    }
    out.push_back(static_cast<char>(byte));
  }
}

}  // namespace keel
