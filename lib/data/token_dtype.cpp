#include "keel/data/token_dtype.h"

#include <array>
#include <limits>
#include <string>

namespace keel {
namespace {

struct Entry {
  TokenDtype type;
  std::string_view name;
  uint8_t megatron;  // 0: none
};

constexpr std::array<Entry, 7> kTypes{{{TokenDtype::uint8, "uint8", 1},
                                       {TokenDtype::int8, "int8", 2},
                                       {TokenDtype::int16, "int16", 3},
                                       {TokenDtype::int32, "int32", 4},
                                       {TokenDtype::int64, "int64", 5},
                                       {TokenDtype::uint16, "uint16", 8},
                                       {TokenDtype::uint32, "uint32", 0}}};

const Entry& entry_of(TokenDtype type) {
  for (const Entry& entry : kTypes) {
    if (entry.type == type) return entry;
  }
  throw Error(ErrorKind::internal, "unknown token type");
}

}  // namespace

int64_t token_dtype_bytes(TokenDtype type) {
  return with_token_type(type, [](auto token) { return static_cast<int64_t>(sizeof token); });
}

std::string_view to_string(TokenDtype type) {
  return entry_of(type).name;
}

std::optional<TokenDtype> parse_token_dtype(std::string_view name) {
  for (const Entry& entry : kTypes) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

TokenDtype token_dtype_for(int64_t largest_id) {
  return largest_id <= std::numeric_limits<uint16_t>::max() ? TokenDtype::uint16 : TokenDtype::int32;
}

uint8_t megatron_code(TokenDtype type) {
  const Entry& entry = entry_of(type);
  if (entry.megatron == 0) throw Error(ErrorKind::internal, "Megatron has no code for " + std::string(entry.name));
  return entry.megatron;
}

std::optional<TokenDtype> token_dtype_of_megatron(uint8_t code) {
  for (const Entry& entry : kTypes) {
    if (entry.megatron == code && code != 0) return entry.type;
  }
  return std::nullopt;
}

}  // namespace keel
