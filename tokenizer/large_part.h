#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

namespace keel {

/// Before a part of text is encoded that cannot be cut, at a memory of many times its size: TextTooLong above `most`
/// bytes, and of parts above 1 MiB the whole process encodes one at a time, while the lock is held (it is empty for
/// small parts). Stopped after a signal.
std::unique_lock<std::mutex> admit_part(std::string_view part, int64_t most);

}  // namespace keel
