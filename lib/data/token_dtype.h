#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "keel/base/error.h"
#include "keel/base/export.h"

namespace keel {

/// How a token is stored: the types of Megatron's codes 1..5 and 8 (its floats hold no tokens), and llm.c's uint32.
enum class TokenDtype { uint8, int8, int16, uint16, int32, uint32, int64 };

KEEL_API int64_t token_dtype_bytes(TokenDtype type);
/// "uint16", and back; nothing for other words.
KEEL_API std::string_view to_string(TokenDtype type);
KEEL_API std::optional<TokenDtype> parse_token_dtype(std::string_view name);

/// The narrowest of uint16 and int32 that holds every id up to the largest.
KEEL_API TokenDtype token_dtype_for(int64_t largest_id);

/// Megatron's code for a type (formats.md 1.1); Error(internal) for uint32, which has none.
KEEL_API uint8_t megatron_code(TokenDtype type);
/// Nothing for codes that are not tokens.
KEEL_API std::optional<TokenDtype> token_dtype_of_megatron(uint8_t code);

/// visit(T{}) with the C++ type of a token.
template <class Visit>
auto with_token_type(TokenDtype type, Visit visit) {
  switch (type) {
    case TokenDtype::uint8:
      return visit(uint8_t{});
    case TokenDtype::int8:
      return visit(int8_t{});
    case TokenDtype::int16:
      return visit(int16_t{});
    case TokenDtype::uint16:
      return visit(uint16_t{});
    case TokenDtype::int32:
      return visit(int32_t{});
    case TokenDtype::uint32:
      return visit(uint32_t{});
    case TokenDtype::int64:
      return visit(int64_t{});
  }
  throw Error(ErrorKind::internal, "unknown token type");
}

}  // namespace keel
