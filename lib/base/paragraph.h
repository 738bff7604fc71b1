#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "keel/base/export.h"

namespace keel {

/// The words of a text in lines of at most so many bytes; a longer word has a line of its own.
KEEL_API std::vector<std::string> wrap(const std::string& text, size_t width);

/// The same as one text that begins in column `indent` and ends before `columns`: lines after the first are indented.
KEEL_API std::string paragraph(const std::string& text, size_t columns, size_t indent);

}  // namespace keel
