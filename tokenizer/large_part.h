#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace keel {

/// Before a part of text is encoded that cannot be cut, at a memory of many times its size: TextTooLong above `most`
/// bytes, and of parts above 1 MiB the whole process encodes one at a time, while the lock is held (it is empty for
/// small parts). Stopped after a signal.
std::unique_lock<std::mutex> admit_part(std::string_view part, int64_t most);

/// The most bytes that the rules of a tokenizer may make of `bytes`: the longest normal form is 11 times its character.
constexpr size_t most_rewritten(size_t bytes) {
  return 16 * bytes + 4096;
}
/// TextTooLong above `most`.
void check_rewritten(size_t bytes, size_t most);

}  // namespace keel
