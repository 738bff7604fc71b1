#pragma once

#include <cstdint>

#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/common/operation_cost.h"

namespace keel {

/// What a device is, as its driver says.
struct CudaDeviceInfo {
  char name[256] = {};
  int compute_capability = 0;  ///< 10 major + minor: 90
  int multiprocessors = 0;
  int64_t memory_bytes = 0, free_bytes = 0;
  int64_t shared_bytes = 0;  ///< shared memory that a block may ask for
  int64_t l2_bytes = 0;
};

/// 0 where there is no driver or no device.
KEEL_CUDA_FUNCTION(int, device_count)
/// The device with this number, with a stream of its own and what operations keep there. Error(device).
KEEL_CUDA_FUNCTION(CudaQueue*, open_queue, int)
/// Waits for what is enqueued, then gives everything back.
KEEL_CUDA_FUNCTION(void, close_queue, CudaQueue*)
KEEL_CUDA_FUNCTION(CudaDeviceInfo, device_info, CudaQueue&)
/// Returns once everything enqueued so far has run. Error(device) with what went wrong since the last time.
KEEL_CUDA_FUNCTION(void, synchronize, CudaQueue&)
/// Device memory, aligned to 256, not initialised. Error(memory). With KEEL_CUDA_SHARED_MEMORY=1 in the environment that of
/// allocate_shared, so that tests and debuggers can look into it.
KEEL_CUDA_FUNCTION(void*, allocate, CudaQueue&, int64_t)
KEEL_CUDA_FUNCTION(void, release, CudaQueue&, void*)
/// The most device memory that this process had at a time, in bytes: of allocate and of what operations keep, without
/// what CUDA takes for itself.
KEEL_CUDA_FUNCTION(int64_t, peak_bytes)
/// Memory of the device that the host sees too, for tests. Error(memory).
KEEL_CUDA_FUNCTION(void*, allocate_shared, CudaQueue&, int64_t)
/// Context::scratch of the device, aligned to 256.
KEEL_CUDA_FUNCTION(void*, scratch, CudaQueue&, int64_t)

/// Memory of the host that the device copies from and to by itself; aligned to 256, not initialised. Error(memory).
KEEL_CUDA_FUNCTION(void*, allocate_pinned, CudaQueue&, int64_t)
/// Waits for what is enqueued, then gives it back.
KEEL_CUDA_FUNCTION(void, release_pinned, CudaQueue&, void*)

/// Enqueued. `host` may be reused at once; of pinned memory, only when the copy has run.
KEEL_CUDA_FUNCTION(void, copy_to_device, CudaQueue&, const void*, void*, int64_t)
/// Enqueued; the host's copy is complete after synchronize. Into memory that is not pinned the host waits for it here.
KEEL_CUDA_FUNCTION(void, copy_to_host, CudaQueue&, const void*, void*, int64_t)
KEEL_CUDA_FUNCTION(void, zero, CudaQueue&, void*, int64_t)

/// A place in what is enqueued.
struct CudaMark;
KEEL_CUDA_FUNCTION(CudaMark*, make_mark, CudaQueue&)
KEEL_CUDA_FUNCTION(void, drop_mark, CudaMark*)
/// Behind everything enqueued so far; an earlier place is forgotten.
KEEL_CUDA_FUNCTION(void, set_mark, CudaQueue&, CudaMark&)
/// Returns once everything before the mark has run; at once if it was never set. Error(device) with what went wrong.
KEEL_CUDA_FUNCTION(void, wait_for_mark, CudaMark&)
/// Seconds from the device reaching one mark until it reached the other; both have been waited for.
KEEL_CUDA_FUNCTION(double, seconds_between, const CudaMark&, const CudaMark&)

/// Work that is kept to be enqueued again: a CUDA graph.
struct CudaRecording;
/// From here on what is enqueued does not run: it is recorded. Meanwhile the host neither waits, nor allocates, nor copies
/// memory that is not pinned; if it tries, the call and end_recording throw.
KEEL_CUDA_FUNCTION(void, begin_recording, CudaQueue&)
/// Error(device).
KEEL_CUDA_FUNCTION(CudaRecording*, end_recording, CudaQueue&)
/// Ends it without a result, whatever has happened.
KEEL_CUDA_FUNCTION(void, cancel_recording, CudaQueue&)
/// Enqueues what was recorded, with the same sizes and addresses.
KEEL_CUDA_FUNCTION(void, replay, CudaQueue&, CudaRecording&)
/// What is enqueued of it still runs.
KEEL_CUDA_FUNCTION(void, drop_recording, CudaRecording*)
/// How often memory that operations keep (scratch and the like) has been replaced: a recording uses what was there.
KEEL_CUDA_FUNCTION(int64_t, replaced_memories)
/// Enqueues a note of the time, and returns its number.
KEEL_CUDA_FUNCTION(int64_t, mark_time, CudaQueue&)
/// Seconds between two notes; waits for them. Their numbers may be given out again then.
KEEL_CUDA_FUNCTION(double, seconds_between_times, CudaQueue&, int64_t begin, int64_t end)

/// Memory for the costs that operations count on the device (OperationProfile::cost_on_device), kept.
inline constexpr int64_t kCostsOnDevice = 4;
KEEL_CUDA_FUNCTION(OperationCost*, costs_on_device, CudaQueue&)

}  // namespace keel
