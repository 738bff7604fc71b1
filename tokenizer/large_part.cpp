#include "keel/tokenizer/large_part.h"

#include <fmt/core.h>

#include "keel/base/signals.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

constexpr int64_t kLargePartBytes = 1 << 20;

}  // namespace

std::unique_lock<std::mutex> admit_part(std::string_view part, int64_t most) {
  throw_if_stopped();
  const auto size = static_cast<int64_t>(part.size());
  if (size > most) {
    throw TextTooLong(fmt::format("{} bytes without a place where this tokenizer may cut, of {} at most", size, most));
  }
  static std::mutex one_large_part;
  return size > kLargePartBytes ? std::unique_lock(one_large_part) : std::unique_lock<std::mutex>();
}

void check_rewritten(size_t bytes, size_t most) {
  if (bytes > most) throw TextTooLong(fmt::format("the tokenizer's rules make more than {} bytes of a text", most));
}

}  // namespace keel
