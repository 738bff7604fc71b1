#pragma once

// The memory of the emulated device and what else its kernels may use.

#include <cstddef>

namespace cuda_on_cpu {

enum class MemoryKind {
  device,      ///< cudaMalloc
  managed,     ///< cudaMallocManaged
  pinned,      ///< cudaMallocHost, cudaHostAlloc
  registered,  ///< cudaHostRegister: pinned, but not ours
};

struct Allocation {
  char* base;
  size_t bytes;
  size_t mapped;  ///< of device and managed memory
  MemoryKind kind;
};

/// Null where there is no room. Filled with NaN; the page behind it is not accessible.
void* allocate(size_t bytes, MemoryKind kind);
/// False if `base` is no allocation of a kind that `accepts` says.
bool free_allocation(void* base, bool (*accepts)(MemoryKind));
/// False if it overlaps what is registered.
bool register_memory(void* base, size_t bytes);
/// The allocation that the pointer points into; null if none.
const Allocation* find_allocation(const void* pointer);
/// Whether the whole range lies in the allocation.
bool holds(const Allocation& allocation, const void* pointer, size_t bytes);
/// In whole pages; without rounding.
size_t device_bytes_in_use();
size_t device_bytes_asked_for();
/// Gives everything back.
void free_all();

/// While one lives, device memory can be touched although Options::guard is set. Not for the host: for what runs on the
/// device.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

/// Bytes 0xff, without a call that a sanitizer would take for the running thread's.
void fill_with_nan(void* memory, size_t bytes);

}  // namespace cuda_on_cpu
