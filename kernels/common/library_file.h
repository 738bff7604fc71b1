#pragma once

#include <filesystem>

#include "keel/base/export.h"

namespace keel {

/// Throws Error(device) unless the file is an ELF library as long as its headers say: the system's loader maps what it
/// is told to and dies of what is not there. What lies between the headers is not looked at.
KEEL_API void require_whole_library(const std::filesystem::path& path);

}  // namespace keel
