#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "keel/base/json.h"

namespace keel::detail {

/// What is wrong and at which byte.
struct JsonSyntaxError {
  std::string what;
  size_t offset;
};

/// Parses by the rules of JsonDocument. Throws JsonSyntaxError.
Json parse_json_text(std::string_view text, int depth);

/// Line and column of a byte.
JsonPosition json_position(std::string_view text, size_t offset);

/// Bytes at which a value and the key in front of it begin.
struct JsonPlace {
  std::optional<size_t> key;
  std::optional<size_t> value;
};

/// Where a JSON pointer leads in a text that parse_json_text accepted.
JsonPlace find_in_json(std::string_view text, std::string_view pointer);

}  // namespace keel::detail
