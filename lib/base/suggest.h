#pragma once

#include <span>
#include <string>
#include <string_view>

#include "keel/base/export.h"

namespace keel {

/// A text for a message: the first `most` bytes (whole characters) and "..." if it is longer.
KEEL_API std::string shortened(std::string_view text, size_t most);
/// A name in quotes, shortened if it is a very long one.
KEEL_API std::string quoted_name(std::string_view name);

/// The hint for a name that is none of `known`: "did you mean 'x'?" when one is near (edit distance with transpositions
/// at most a third of its length, at least 1) or when the name is the beginning of exactly one; else "one of a, b, c", of
/// those that begin with it if any do, when these are few; else "".
KEEL_API std::string suggestion(std::string_view name, std::span<const std::string> known);

}  // namespace keel
