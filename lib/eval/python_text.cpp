#include "keel/eval/python_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utf8proc.h>
#include <nlohmann/json.hpp>

#include "keel/base/utf8.h"

namespace keel {
namespace {

constexpr uint32_t kNoCharacter = 0xFFFFFFFFU;

struct Character {
  uint32_t code = kNoCharacter;
  size_t length = 1;
};

/// The character at the beginning of a text that is not empty.
Character first_of(std::string_view text) {
  const size_t length = utf8_length(text);
  if (length == 0) return {};
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  if (length == 1) return {byte(0), 1};
  uint32_t code = byte(0) & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = (code << 6) | (byte(i) & 0x3FU);
  return {code, length};
}

/// The character at the end of a text that is not empty.
Character last_of(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  const Character c = first_of(text.substr(begin));
  return c.length == text.size() - begin ? c : Character{};
}

utf8proc_category_t category(uint32_t code) {
  return code == kNoCharacter ? UTF8PROC_CATEGORY_CN : utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

/// Characters whose title case is more than one character (Unicode's SpecialCasing.txt, without conditions).
struct TitleSequence {
  uint32_t code;
  std::array<uint32_t, 3> title;
};
constexpr TitleSequence kTitleSequences[] = {
    {0xDF, {0x53, 0x73, 0}},         {0x149, {0x2BC, 0x4E, 0}},       {0x1F0, {0x4A, 0x30C, 0}},
    {0x390, {0x399, 0x308, 0x301}},  {0x3B0, {0x3A5, 0x308, 0x301}},  {0x587, {0x535, 0x582, 0}},
    {0x1E96, {0x48, 0x331, 0}},      {0x1E97, {0x54, 0x308, 0}},      {0x1E98, {0x57, 0x30A, 0}},
    {0x1E99, {0x59, 0x30A, 0}},      {0x1E9A, {0x41, 0x2BE, 0}},      {0x1F50, {0x3A5, 0x313, 0}},
    {0x1F52, {0x3A5, 0x313, 0x300}}, {0x1F54, {0x3A5, 0x313, 0x301}}, {0x1F56, {0x3A5, 0x313, 0x342}},
    {0x1FB2, {0x1FBA, 0x345, 0}},    {0x1FB4, {0x386, 0x345, 0}},     {0x1FB6, {0x391, 0x342, 0}},
    {0x1FB7, {0x391, 0x342, 0x345}}, {0x1FC2, {0x1FCA, 0x345, 0}},    {0x1FC4, {0x389, 0x345, 0}},
    {0x1FC6, {0x397, 0x342, 0}},     {0x1FC7, {0x397, 0x342, 0x345}}, {0x1FD2, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}}, {0x1FD6, {0x399, 0x342, 0}},     {0x1FD7, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}}, {0x1FE3, {0x3A5, 0x308, 0x301}}, {0x1FE4, {0x3A1, 0x313, 0}},
    {0x1FE6, {0x3A5, 0x342, 0}},     {0x1FE7, {0x3A5, 0x308, 0x342}}, {0x1FF2, {0x1FFA, 0x345, 0}},
    {0x1FF4, {0x38F, 0x345, 0}},     {0x1FF6, {0x3A9, 0x342, 0}},     {0x1FF7, {0x3A9, 0x342, 0x345}},
    {0xFB00, {0x46, 0x66, 0}},       {0xFB01, {0x46, 0x69, 0}},       {0xFB02, {0x46, 0x6C, 0}},
    {0xFB03, {0x46, 0x66, 0x69}},    {0xFB04, {0x46, 0x66, 0x6C}},    {0xFB05, {0x53, 0x74, 0}},
    {0xFB06, {0x53, 0x74, 0}},       {0xFB13, {0x544, 0x576, 0}},     {0xFB14, {0x544, 0x565, 0}},
    {0xFB15, {0x544, 0x56B, 0}},     {0xFB16, {0x54E, 0x576, 0}},     {0xFB17, {0x544, 0x56D, 0}},
};

/// Unicode's Cased: letters with case, and the few that Other_Lowercase and Other_Uppercase add.
bool is_cased(uint32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      break;
  }
  return c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) || (c >= 0x2C0 && c <= 0x2C1) ||
         (c >= 0x2E0 && c <= 0x2E4) || c == 0x345 || c == 0x37A || (c >= 0x1D2C && c <= 0x1D6A) || c == 0x1D78 ||
         (c >= 0x1D9B && c <= 0x1DBF) || c == 0x2071 || c == 0x207F || (c >= 0x2090 && c <= 0x209C) ||
         (c >= 0x2160 && c <= 0x217F) || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

/// Unicode's Case_Ignorable: marks, format characters, modifiers, and punctuation inside words.
bool is_case_ignorable(uint32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  for (uint32_t p : {0x27, 0x2E, 0x3A, 0xB7, 0x387, 0x55F, 0x5F4, 0x2018, 0x2019, 0x2024, 0x2027, 0xFE13, 0xFE52,
                     0xFE55, 0xFF07, 0xFF0E, 0xFF1A}) {
    if (c == p) return true;
  }
  return false;
}

constexpr uint32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;

/// A capital sigma ends a word if a letter with case comes before it and none after.
bool is_final_sigma(std::string_view before, std::string_view after) {
  Character c{};
  while (!before.empty() && is_case_ignorable((c = last_of(before)).code)) before.remove_suffix(c.length);
  if (before.empty() || !is_cased(last_of(before).code)) return false;
  while (!after.empty() && is_case_ignorable((c = first_of(after)).code)) after.remove_prefix(c.length);
  return after.empty() || !is_cased(first_of(after).code);
}

/// Appends the lower case of text[at, at + c.length).
void append_lower(std::string_view text, size_t at, const Character& c, std::string& out) {
  if (c.code == kNoCharacter) {
    out += text.substr(at, c.length);
  } else if (c.code == 0x130) {  // I with a dot above
    append_utf8(out, 'i');
    append_utf8(out, 0x307);
  } else if (c.code == kCapitalSigma) {
    append_utf8(out, is_final_sigma(text.substr(0, at), text.substr(at + c.length)) ? kFinalSigma : kSmallSigma);
  } else {
    append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
  }
}

void append_title(const Character& c, std::string& out) {
  for (const TitleSequence& sequence : kTitleSequences) {
    if (sequence.code != c.code) continue;
    for (uint32_t code : sequence.title) {
      if (code != 0) append_utf8(out, code);
    }
    return;
  }
  append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c.code))));
}

/// str.isprintable of one character.
bool is_printable(uint32_t code) {
  if (code == ' ') return true;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void append_json_string(const std::string& text, std::string& out) {
  out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append_json(const Json& value, int indent, int level, std::string& out) {
  const auto new_line = [&](int depth) {
    if (indent >= 0) out.append("\n").append(static_cast<size_t>(indent * depth), ' ');
  };
  switch (value.type()) {
    case Json::value_t::object:
    case Json::value_t::array: {
      const bool is_object = value.is_object();
      out += is_object ? '{' : '[';
      bool first = true;
      for (auto it = value.begin(); it != value.end(); ++it) {
        if (!std::exchange(first, false)) out += indent >= 0 ? "," : ", ";
        new_line(level + 1);
        if (is_object) {
          append_json_string(it.key(), out);
          out += ": ";
        }
        append_json(*it, indent, level + 1, out);
      }
      if (!value.empty()) new_line(level);
      out += is_object ? '}' : ']';
      break;
    }
    case Json::value_t::string:
      append_json_string(value.get_ref<const std::string&>(), out);
      break;
    case Json::value_t::number_float:
      out += python_repr(value.get<double>());
      break;
    default:
      out += value.dump();
      break;
  }
}

}  // namespace

bool is_python_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view python_lstrip(std::string_view text) {
  while (!text.empty()) {
    const Character c = first_of(text);
    if (!is_python_space(c.code)) break;
    text.remove_prefix(c.length);
  }
  return text;
}

std::string_view python_rstrip(std::string_view text) {
  while (!text.empty()) {
    const Character c = last_of(text);
    if (!is_python_space(c.code)) break;
    text.remove_suffix(c.length);
  }
  return text;
}

std::string_view python_strip(std::string_view text) {
  return python_lstrip(python_rstrip(text));
}

int64_t count_characters(std::string_view text) {
  int64_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(first_of(text).length);
  return count;
}

int64_t count_words(std::string_view text) {
  int64_t pieces = 1;
  bool in_space = false;
  while (!text.empty()) {
    const Character c = first_of(text);
    const bool space = is_python_space(c.code);
    pieces += space && !in_space;
    in_space = space;
    text.remove_prefix(c.length);
  }
  return pieces;
}

std::string python_replace(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t at = 0;
  for (size_t hit; (hit = text.find(from, at)) != std::string_view::npos; at = hit + from.size()) {
    out.append(text.substr(at, hit - at)).append(to);
  }
  return out.append(text.substr(at));
}

std::string python_lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Character c = first_of(text.substr(at));
    append_lower(text, at, c, out);
    at += c.length;
  }
  return out;
}

std::string python_capitalize(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Character c = first_of(text.substr(at));
    if (at == 0 && c.code != kNoCharacter) {
      append_title(c, out);
    } else {
      append_lower(text, at, c, out);
    }
    at += c.length;
  }
  return out;
}

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t mark = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", text.substr(0, mark), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string digits(buffer.data(), fixed.ptr);
  return digits.find('.') == std::string::npos ? digits + ".0" : digits;
}

std::string python_repr(std::string_view text) {
  const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const Character c = first_of(text);
    if (c.code == '\\' || c.code == static_cast<uint32_t>(quote)) {
      out.append(1, '\\').append(1, static_cast<char>(c.code));
    } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
      out += c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c.code)) {
      out += text.substr(0, c.length);
    } else {
      const uint32_t code = c.code == kNoCharacter ? static_cast<unsigned char>(text[0]) : c.code;
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
    text.remove_prefix(c.length);
  }
  return out + quote;
}

std::string python_value_repr(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return python_repr(std::string_view(value.get_ref<const std::string&>()));
    case Json::value_t::number_float:
      return python_repr(value.get<double>());
    case Json::value_t::boolean:
      return value.get<bool>() ? "True" : "False";
    case Json::value_t::null:
      return "None";
    case Json::value_t::array: {
      std::vector<std::string> parts;
      for (const Json& item : value) parts.push_back(python_value_repr(item));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
    case Json::value_t::object: {
      std::vector<std::string> parts;
      for (auto it = value.begin(); it != value.end(); ++it) {
        parts.push_back(fmt::format("{}: {}", python_repr(std::string_view(it.key())), python_value_repr(*it)));
      }
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
    }
    default:
      return value.dump();
  }
}

std::string python_str(const Json& value) {
  return value.is_string() ? value.get<std::string>() : python_value_repr(value);
}

std::string python_json(const Json& value, int indent) {
  std::string out;
  append_json(value, indent, 0, out);
  return out;
}

}  // namespace keel
