#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace keel::detail {

/// Error(format) "truncated: 9 bytes, wanted 10 for <because>" or "trailing bytes: ..." unless they are equal.
void require_size(const std::filesystem::path& path, int64_t bytes, int64_t wanted, const std::string& because);

}  // namespace keel::detail
