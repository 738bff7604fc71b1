#pragma once

// Memory of the device, counted. For *_cuda.cpp and *_cuda.cu only.

#include <cstdint>

namespace keel {

/// Aligned to 256, not initialised. Error(memory) names what it was for.
void* allocate_counted(int64_t bytes, const char* what);
/// What allocate_counted gave, other device memory, which is not counted, or null; waits for what may use it.
void free_counted(void* memory) noexcept;

}  // namespace keel
