#pragma once

#include "keel/base/export.h"

namespace keel {

/// The version of the toolkit, "MAJOR.MINOR.PATCH" as in CMakeLists.txt.
KEEL_API const char* version() noexcept;

}  // namespace keel
