#include "keel/tokenizer/utf8_repair.h"

#include <simdjson.h>

#include <algorithm>

namespace keel {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  int64_t length;  // of the well-formed sequence, or of the maximal subpart of an ill-formed one; at least 1
  bool valid;
};

// The sequence that starts at bytes[0]; bytes is not empty.
Sequence next_sequence(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {1, true};
  int64_t length;
  unsigned char low = 0x80, high = 0xBF;  // bounds of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false};
  }
  for (int64_t i = 1; i < length; ++i) {
    if (i >= static_cast<int64_t>(bytes.size()) || at(i) < low || at(i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

int64_t find_invalid_utf8(std::string_view bytes) {
  if (simdjson::validate_utf8(bytes.data(), bytes.size())) return -1;
  int64_t offset = 0;
  while (offset < static_cast<int64_t>(bytes.size())) {
    const Sequence sequence = next_sequence(bytes.substr(offset));
    if (!sequence.valid) return offset;
    offset += sequence.length;
  }
  return -1;
}

int64_t append_replacing_invalid_utf8(std::string_view bytes, std::string& text) {
  if (simdjson::validate_utf8(bytes.data(), bytes.size())) {
    text.append(bytes);
    return 0;
  }
  int64_t replaced = 0;
  size_t copied = 0, offset = 0;
  while (offset < bytes.size()) {
    const Sequence sequence = next_sequence(bytes.substr(offset));
    if (!sequence.valid) {
      text.append(bytes.substr(copied, offset - copied));
      text.append(kReplacement);
      copied = offset + sequence.length;
      ++replaced;
    }
    offset += sequence.length;
  }
  text.append(bytes.substr(copied));
  return replaced;
}

int64_t incomplete_utf8_tail(std::string_view bytes) {
  for (size_t length = std::min<size_t>(3, bytes.size()); length > 0; --length) {
    const std::string_view tail = bytes.substr(bytes.size() - length);
    const Sequence sequence = next_sequence(tail);
    const bool is_lead = static_cast<unsigned char>(tail[0]) >= 0xC2 && static_cast<unsigned char>(tail[0]) <= 0xF4;
    if (is_lead && !sequence.valid && sequence.length == static_cast<int64_t>(length)) {
      return static_cast<int64_t>(length);
    }
  }
  return 0;
}

}  // namespace keel
