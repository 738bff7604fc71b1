#include "keel/kernels/memory/memory.h"

#include <cstring>

namespace keel::detail {

void copy_bytes(Context&, const void* from, void* to, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void zero_bytes(Context&, void* to, int64_t bytes) {
  if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
}

}  // namespace keel::detail
