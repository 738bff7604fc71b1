#pragma once

#include <cstdint>

namespace keel {

/// An operation on fewer elements than this runs on the calling thread: waking the others would take longer.
inline constexpr int64_t kParallelElements = 1 << 14;

}  // namespace keel
