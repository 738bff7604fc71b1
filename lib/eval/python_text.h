#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "keel/base/export.h"
#include "keel/base/json.h"

namespace keel {

/// What Python's str methods and json module do to a text, where a benchmark's prompts, scores or files depend on it.
/// Texts are valid UTF-8; bytes that are not count as one character each, of no kind.

/// str.isspace of one character, which \s follows: Unicode's White_Space and U+001C .. U+001F.
KEEL_API bool is_python_space(uint32_t code_point);

KEEL_API std::string_view python_lstrip(std::string_view text);
KEEL_API std::string_view python_rstrip(std::string_view text);
KEEL_API std::string_view python_strip(std::string_view text);

/// len(text): code points.
KEEL_API int64_t count_characters(std::string_view text);
/// Pieces of re.split(r"\s+", text): white space at an end adds an empty piece.
KEEL_API int64_t count_words(std::string_view text);

/// str.replace: every occurrence of `from` (not empty) from left to right.
KEEL_API std::string python_replace(std::string_view text, std::string_view from, std::string_view to);

/// str.lower: full mappings and final sigma, context and all.
KEEL_API std::string python_lower(std::string_view text);
/// str.capitalize: the first character in title case, all others in lower case.
KEEL_API std::string python_capitalize(std::string_view text);

/// repr(float): the shortest digits that read back equal; "nan", "inf", "-inf".
KEEL_API std::string python_repr(double value);
/// repr(str): quotes chosen as Python does; what is not printable is escaped.
KEEL_API std::string python_repr(std::string_view text);

/// repr(value) of what json.loads makes of it, and str(value): texts as they are.
KEEL_API std::string python_value_repr(const Json& value);
KEEL_API std::string python_str(const Json& value);

/// json.dumps(value, ensure_ascii=False), with indent=... unless it is negative. Floats by python_repr; non-finite
/// ones, which a Json cannot hold, never occur.
KEEL_API std::string python_json(const Json& value, int indent = -1);

}  // namespace keel
