#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace keel {

/// "1 file", "2 files"; `noun` in the singular.
inline std::string counted(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace keel
