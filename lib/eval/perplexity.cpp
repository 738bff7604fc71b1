#include "keel/eval/perplexity.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

namespace keel {
namespace {

struct Character {
  uint32_t code = 0;
  size_t length = 1;
};

/// The character at the beginning of a text that is not empty; a byte that begins none stands for itself above Unicode.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
  if (length == 1 || length > text.size()) return {0xFFFFFFFFU, 1};
  uint32_t code = lead & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {0xFFFFFFFFU, 1};
    code = (code << 6) | (byte(i) & 0x3FU);
  }
  return {code, length};
}

/// Python's str.isspace, which its \s follows.
bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

int64_t count_words(std::string_view text) {
  int64_t pieces = 1;
  bool in_space = false;
  while (!text.empty()) {
    const Character c = first_character(text);
    const bool space = is_space(c.code);
    pieces += space && !in_space;
    in_space = space;
    text.remove_prefix(c.length);
  }
  return pieces;
}

Json perplexity_json(double ll, const TextCounts& counts) {
  const auto per = [&](int64_t count) {
    return count > 0 ? -ll / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
  };
  const auto put = [](Json& json, const char* key, double value) {
    if (std::isnan(value)) {
      json[key] = nullptr;
    } else {
      set_number(json, key, value);
    }
  };
  Json json;
  put(json, "nats_per_token", per(counts.tokens));
  put(json, "token_perplexity", std::exp(per(counts.tokens)));
  put(json, "word_perplexity", std::exp(per(counts.words)));
  put(json, "byte_perplexity", std::exp(per(counts.bytes)));
  put(json, "bits_per_byte", per(counts.bytes) / std::numbers::ln2);
  json["tokens"] = counts.tokens;
  json["words"] = counts.words;
  json["bytes"] = counts.bytes;
  return json;
}

}  // namespace keel
