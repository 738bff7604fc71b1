#pragma once

#include <optional>
#include <string>

#include "keel/base/config.h"

namespace keel::detail {

/// What a key accepts, in words: "an integer of at least 1", "one of cosine, wsd", "a number, or auto".
std::string describe_values(const ConfigKey& key);

/// A value as typed on a command line: JSON if it is JSON, else text; numbers as people write them and comma-separated
/// lists where the key's type wants them.
Json value_of_text(const ConfigKey& key, const std::string& text);

/// What is wrong with a value, and a hint.
struct ValueProblem {
  std::string message;
  std::string hint;
};

/// Checks a value against its key and brings it into its stored form (sizes and durations as numbers, 1e9 as integer).
std::optional<ValueProblem> check_value(const ConfigKey& key, Json& value);

}  // namespace keel::detail
