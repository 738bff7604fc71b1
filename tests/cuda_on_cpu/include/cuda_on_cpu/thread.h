#pragma once

// What a running CUDA thread is to the emulation: its indices, block barriers, shared memory, cp.async.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../driver_types.h"

// Variables and no macros: cudaLaunchConfig_t has members of these names.
extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace cuda_on_cpu {

/// Where a kernel waits, for messages.
struct Place {
  const char* file;
  int line;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

struct AsyncCopy {
  void* to;
  const void* from;  ///< null: zeros
  unsigned group;
};
inline constexpr int kMaxAsyncCopies = 128;

struct Fiber;
struct WarpRequest;

struct Thread {
  uint3 index;
  uint16_t linear;  ///< in its block
  uint8_t lane;
  uint8_t warp;
  enum State : int { runs, waits_for_block, waits_for_warp, ended } state;
  int async_copies;
  unsigned async_group;
  Fiber* fiber;  ///< null before its start
  Place place;   ///< where it waits
  const WarpRequest* request;
  AsyncCopy* async_copy;  ///< [kMaxAsyncCopies]
};

/// The running CUDA thread; null in host code.
extern constinit thread_local Thread* self;

/// Ends the kernel: what the next synchronisation returns says this, the place, block and thread.
[[noreturn]] void fail_thread(cudaError_t error, const char* what, Place place = Place::here());

/// Returns how many threads voted non-zero.
int block_barrier(int vote, Place place);

/// Static shared memory: the same for every thread of a block that asks with this key, NaN at first.
void* block_shared(const void* key, size_t bytes, size_t align);
void* block_dynamic_shared();
/// Only what cvta would refuse too: cp.async and ldmatrix need addresses in shared memory.
bool is_shared(const void* address);

/// For ThreadSanitizer a fence publishes what the thread wrote to whoever runs an atomic operation or a fence later.
void memory_fence();
#if defined(__SANITIZE_THREAD__)
void see_fences();
#else
inline void see_fences() {}
#endif

// ---- cp.async: the bytes arrive when they are waited for and not before, so that a missing wait shows

inline void cp_async16(void* shared, const void* global, bool valid, Place place = Place::here()) {
  Thread& thread = *self;
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16 != 0) {
    fail_thread(cudaErrorMisalignedAddress, "cp.async: an address is no multiple of 16", place);
  }
  if (!is_shared(shared)) fail_thread(cudaErrorInvalidAddressSpace, "cp.async: its target is not shared memory", place);
  if (thread.async_copies == kMaxAsyncCopies) {
    fail_thread(cudaErrorLaunchFailure, "cp.async: the emulation keeps at most 128 copies a thread in flight", place);
  }
  thread.async_copy[thread.async_copies++] = {shared, valid ? global : nullptr, thread.async_group};
}
inline void cp_async_commit() {
  ++self->async_group;
}
inline void cp_async_wait(unsigned pending) {
  Thread& thread = *self;
  int kept = 0;
  for (int i = 0; i < thread.async_copies; ++i) {
    const AsyncCopy& copy = thread.async_copy[i];
    if (copy.group + pending >= thread.async_group) {
      thread.async_copy[kept++] = copy;
    } else if (copy.from == nullptr) {
      std::memset(copy.to, 0, 16);
    } else {
      std::memcpy(copy.to, copy.from, 16);
    }
  }
  thread.async_copies = kept;
}

}  // namespace cuda_on_cpu

inline void __syncthreads(cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  cuda_on_cpu::block_barrier(0, place);
}
inline int __syncthreads_count(int predicate, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::block_barrier(predicate != 0, place);
}
inline int __syncthreads_or(int predicate, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::block_barrier(predicate != 0, place) != 0;
}
inline int __syncthreads_and(int predicate, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::block_barrier(predicate == 0, place) == 0;
}
inline void __threadfence_block() {
  cuda_on_cpu::memory_fence();
}
inline void __threadfence() {
  cuda_on_cpu::memory_fence();
}
inline void __threadfence_system() {
  cuda_on_cpu::memory_fence();
}
