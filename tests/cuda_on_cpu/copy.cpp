// Allocations, copies and fills.

#include <cstring>
#include <memory>
#include <string>

#include "emulation.h"
#include "memory.h"
#include "runtime.h"

namespace cuda_on_cpu {
namespace {

enum class Side { host, device, either };

Side side_of(const void* pointer) {
  const Allocation* allocation = find_allocation(pointer);
  if (allocation == nullptr) return Side::host;
  switch (allocation->kind) {
    case MemoryKind::device:
      return Side::device;
    case MemoryKind::managed:
      return Side::either;
    case MemoryKind::pinned:
    case MemoryKind::registered:
      break;
  }
  return Side::host;
}

bool runs_over(const void* pointer, size_t bytes) {
  const Allocation* allocation = find_allocation(pointer);
  return allocation != nullptr && !holds(*allocation, pointer, bytes);
}

/// Host memory that the system may move: the runtime copies it through buffers of its own, while the caller waits.
bool is_pageable(const void* pointer) {
  return find_allocation(pointer) == nullptr;
}

cudaError_t check_copy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return refuse(cudaErrorInvalidMemcpyDirection, "cudaMemcpy: no such direction");
  }
  if (to == nullptr || from == nullptr) return refuse(cudaErrorInvalidValue, "cudaMemcpy: null");
  const auto fits = [](Side side, bool device) { return side == Side::either || (side == Side::device) == device; };
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (!fits(side_of(to), to_device) || !fits(side_of(from), from_device))) {
    return refuse(cudaErrorInvalidValue, "cudaMemcpy: the direction does not fit the pointers");
  }
  if (runs_over(to, bytes) || runs_over(from, bytes)) {
    return refuse(cudaErrorInvalidValue, "cudaMemcpy: past the end of an allocation");
  }
  return cudaSuccess;
}

void move(void* to, const void* from, size_t bytes) {
  const DeviceAccess access;
  std::memmove(to, from, bytes);
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, bool& waited) {
  if (!is_stream(stream)) return refuse(cudaErrorInvalidResourceHandle, "cudaMemcpyAsync: not a stream");
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t error = check_copy(to, from, bytes, kind); error != cudaSuccess) return error;
  if (const cudaError_t error = check_enqueue(stream); error != cudaSuccess) return error;
  if (is_capturing(stream) && (is_pageable(to) || is_pageable(from))) {
    return refuse_in_capture(stream, "cudaMemcpyAsync of memory that is not page-locked");
  }
  enqueue(
      stream, [=] { move(to, from, bytes); },
      [&]() -> std::function<void()> {
        if (!is_pageable(from)) return [=] { move(to, from, bytes); };
        auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
        return [=] { move(to, staged->data(), bytes); };
      });
  waited = is_pageable(to);
  return waited ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t fill(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (!is_stream(stream)) return refuse(cudaErrorInvalidResourceHandle, "cudaMemsetAsync: not a stream");
  if (bytes == 0) return cudaSuccess;
  if (is_pageable(memory)) return refuse(cudaErrorInvalidValue, "cudaMemset: not memory of the device");
  if (runs_over(memory, bytes)) return refuse(cudaErrorInvalidValue, "cudaMemset: past the end of an allocation");
  if (const cudaError_t error = check_enqueue(stream); error != cudaSuccess) return error;
  const auto run = [=] {
    const DeviceAccess access;
    std::memset(memory, value, bytes);
  };
  enqueue(stream, run, [&] { return run; });
  return cudaSuccess;
}

cudaError_t provide(void** memory, size_t bytes, MemoryKind kind, const char* function) {
  if (memory == nullptr) return refuse(cudaErrorInvalidValue, std::string(function) + ": null");
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  *memory = allocate(bytes, kind);
  if (*memory != nullptr) return cudaSuccess;
  return refuse(cudaErrorMemoryAllocation,
                std::string(function) + ": " + std::to_string(bytes) + " bytes, of which the device has " +
                    std::to_string(cuda_on_cpu_options()->memory_bytes - device_bytes_in_use()) + " free");
}

cudaError_t discard(void* memory, bool (*accepts)(MemoryKind), const char* function) {
  if (memory == nullptr) return cudaSuccess;
  synchronize_device();
  if (!free_allocation(memory, accepts)) {
    return refuse(cudaErrorInvalidValue, std::string(function) + ": not what it was allocated with, or freed before");
  }
  return device_error();
}

}  // namespace
}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return api_call_outside_capture("cudaMalloc",
                                  [&] { return provide(memory, bytes, MemoryKind::device, "cudaMalloc"); });
}

cudaError_t cudaMallocManaged(void** memory, size_t bytes, unsigned flags) {
  return api_call_outside_capture("cudaMallocManaged", [&] {
    if (bytes == 0 || flags != cudaMemAttachGlobal) return refuse(cudaErrorInvalidValue, "cudaMallocManaged");
    return provide(memory, bytes, MemoryKind::managed, "cudaMallocManaged");
  });
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return api_call_outside_capture("cudaHostAlloc", [&] {
    if (flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined)) {
      return refuse(cudaErrorInvalidValue, "cudaHostAlloc: flags");
    }
    return provide(memory, bytes, MemoryKind::pinned, "cudaHostAlloc");
  });
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  return api_call_outside_capture("cudaHostRegister", [&] {
    if (memory == nullptr || bytes == 0 || flags > cudaHostRegisterPortable) {
      return refuse(cudaErrorInvalidValue, "cudaHostRegister");
    }
    return register_memory(memory, bytes) ? cudaSuccess
                                          : refuse(cudaErrorHostMemoryAlreadyRegistered, "cudaHostRegister");
  });
}

cudaError_t cudaHostUnregister(void* memory) {
  return api_call_outside_capture("cudaHostUnregister", [&] {
    synchronize_device();
    return free_allocation(memory, [](MemoryKind kind) { return kind == MemoryKind::registered; })
               ? cudaSuccess
               : refuse(cudaErrorHostMemoryNotRegistered, "cudaHostUnregister");
  });
}

cudaError_t cudaFree(void* memory) {
  return api_call_outside_capture("cudaFree", [&] {
    return discard(
        memory, [](MemoryKind kind) { return kind == MemoryKind::device || kind == MemoryKind::managed; }, "cudaFree");
  });
}

cudaError_t cudaFreeHost(void* memory) {
  return api_call_outside_capture("cudaFreeHost", [&] {
    return discard(
        memory, [](MemoryKind kind) { return kind == MemoryKind::pinned; }, "cudaFreeHost");
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api_call([&] {
    if (free == nullptr || total == nullptr) return refuse(cudaErrorInvalidValue, "cudaMemGetInfo: null");
    *total = cuda_on_cpu_options()->memory_bytes;
    *free = *total - device_bytes_in_use();
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api_call([&] {
    if (attributes == nullptr) return refuse(cudaErrorInvalidValue, "cudaPointerGetAttributes: null");
    const Allocation* allocation = find_allocation(pointer);
    void* address = const_cast<void*>(pointer);
    if (allocation == nullptr || !holds(*allocation, pointer, 1)) {
      *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, address};
    } else if (allocation->kind == MemoryKind::device) {
      *attributes = {cudaMemoryTypeDevice, 0, address, nullptr};
    } else {
      const bool managed = allocation->kind == MemoryKind::managed;
      *attributes = {managed ? cudaMemoryTypeManaged : cudaMemoryTypeHost, 0, address, address};
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api_call([&] {
    bool waited = false;
    return copy(to, from, bytes, kind, stream, waited);
  });
}

// Between two places on the device it returns before it is done, as the real one does.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api_call_outside_capture("cudaMemcpy", [&] {
    bool waited = false;
    const cudaError_t error = copy(to, from, bytes, kind, nullptr, waited);
    const bool on_device = side_of(to) == Side::device && side_of(from) == Side::device;
    if (error != cudaSuccess || waited || on_device) return error;
    return cudaStreamSynchronize(nullptr);
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return api_call([&] { return fill(memory, value, bytes, stream); });
}

cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return api_call_outside_capture("cudaMemset", [&] { return fill(memory, value, bytes, nullptr); });
}
