#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "keel/base/export.h"

namespace keel {

/// The offset of the first byte that does not belong to well-formed UTF-8 (Unicode 15, table 3-7: no surrogates, no
/// overlong forms, nothing above U+10FFFF), or -1 when all of `bytes` is well-formed.
KEEL_API int64_t find_invalid_utf8(std::string_view bytes);

/// Appends `bytes` to `text`, each maximal subpart of an ill-formed sequence replaced by U+FFFD: what the WHATWG
/// decoder and Python's decode("utf-8", "replace") do. Returns the number of replacements.
KEEL_API int64_t append_replacing_invalid_utf8(std::string_view bytes, std::string& text);

/// How many bytes at the end of `bytes` begin a sequence that more bytes could make well-formed (0 .. 3).
KEEL_API int64_t incomplete_utf8_tail(std::string_view bytes);

}  // namespace keel
