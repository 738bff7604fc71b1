#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/data/token_shards.h"
#include "support/shards.h"

namespace keel::testing {

inline constexpr int64_t kAnyToken = int64_t{1} << 31;

inline std::vector<int32_t> read_tokens(const TokenStream& stream, int64_t begin, int64_t end,
                                        int64_t limit = kAnyToken) {
  std::vector<int32_t> tokens(end - begin);
  stream.read(begin, end, {tokens.data(), {end - begin}}, limit);
  return tokens;
}

inline std::vector<int32_t> all_tokens(const TokenStream& stream) {
  return read_tokens(stream, 0, stream.tokens());
}

/// The message with which opening is refused.
inline std::string open_error(ErrorKind kind, const std::string& path, DataFormat format = DataFormat::automatic) {
  return message_of(kind, [&] { (void)open_token_data(path, format); });
}

/// formats.md 1.4
inline const std::string kExampleIndex = from_hex(
    "4d4d49444944580000 0100000000000000 08 0200000000000000 0300000000000000 03000000 02000000 0000000000000000 "
    "0600000000000000 0000000000000000 0100000000000000 0200000000000000");
inline const std::string kExampleTokens = from_hex("1b01 1901 0200 1101 0200");

}  // namespace keel::testing

/// Expects a text to hold a part.
#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)
