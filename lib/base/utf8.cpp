#include "keel/base/utf8.h"

#include "keel/base/error.h"

namespace keel {
namespace {

void append_hex(std::string& out, const char* start, unsigned char byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += start;
  out += kDigits[byte >> 4];
  out += kDigits[byte & 0xF];
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text.substr(at));
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == '\n' || byte == '\t' || byte == '\r') {
      out += byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : "\\r";
    } else if (length == 0 || byte < 0x20 || byte == 0x7F) {
      append_hex(out, "\\x", byte);
    } else if (const auto second = length == 2 ? static_cast<unsigned char>(text[at + 1]) : 0xFF;
               byte == 0xC2 && second < 0xA0) {
      append_hex(out, "\\u00", second);
    } else {
      out.append(text.substr(at, length));
    }
    at += length == 0 ? 1 : length;
  }
  return out;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++at;
    } else {
      out.append(text.substr(at, length));
      at += length;
    }
  }
  return out;
}

void require_utf8_path(std::string_view what, std::string_view path) {
  if (replace_invalid_utf8(path) == path) return;
  throw Error(ErrorKind::usage, std::string(what) + " is a path that is not UTF-8, which no JSON file can record",
              std::string(path), "rename it, or reach it by a link with a UTF-8 name");
}

}  // namespace keel
