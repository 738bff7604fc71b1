#pragma once

// The state of the emulated runtime.

#include <functional>
#include <mutex>
#include <string>

#include "cuda_runtime_api.h"

namespace cuda_on_cpu {

/// Remembers why; returns the error.
cudaError_t refuse(cudaError_t error, const std::string& reason);

/// An error of what ran on the device: from now on every call returns it, as of a GPU whose context is broken.
void break_device(cudaError_t error, const std::string& reason);
/// cudaSuccess unless the device is broken.
cudaError_t device_error();

/// Work of a stream, in its turn. Lazily: not before someone waits for it.
void enqueue(cudaStream_t stream, std::function<void()> work);
/// With CUDA_LAUNCH_BLOCKING: runs all work of the stream, of which a kernel was the last.
void launched(cudaStream_t stream);
/// Whether the stream may be used; null is the default stream.
bool is_stream(cudaStream_t stream);
/// Eagerly: runs what comes before new work of this stream, and returns true.
bool runs_at_once(cudaStream_t stream);

/// While the stream is captured, work becomes a node of the graph in place of being run; true if it did.
bool capture(cudaStream_t stream, const std::function<void()>& work);
bool is_capturing(cudaStream_t stream);
/// cudaSuccess if work may be enqueued: not into a capture that has failed, nor into the default stream where that waits for
/// a stream that is captured.
cudaError_t check_enqueue(cudaStream_t stream);
/// What may not be done while a stream is captured: makes the capture fail.
cudaError_t refuse_in_capture(cudaStream_t stream, const std::string& reason);
/// cudaSuccess unless this thread may not wait, allocate and the like: then every capture that forbids it fails.
cudaError_t check_no_capture(const char* function);

bool is_blocking(cudaStream_t stream);
void synchronize_device();
void forget_streams();
void forget_graphs();
void forget_errors();
void forget_kernels();

std::recursive_mutex& api_mutex();
extern thread_local bool in_host_function;
/// What the calling thread's next cudaGetLastError returns.
extern thread_local cudaError_t last_error;

/// A call of the runtime: one at a time; refused on a broken device, and in a function that a stream calls.
template <class Function>
cudaError_t api_call(Function function) {
  const std::lock_guard lock(api_mutex());
  cudaError_t error = in_host_function
                          ? refuse(cudaErrorNotPermitted, "a function that a stream calls may not use CUDA")
                          : device_error();
  if (error == cudaSuccess) error = function();
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

/// One that may not be made while a stream is captured.
template <class Function>
cudaError_t api_call_outside_capture(const char* name, Function function) {
  return api_call([&] {
    const cudaError_t error = check_no_capture(name);
    return error == cudaSuccess ? function() : error;
  });
}

/// For what is called often: `run` now or, lazily, what `keep` returns in its turn.
template <class Run, class Keep>
void enqueue(cudaStream_t stream, Run run, Keep keep) {
  if (runs_at_once(stream)) {
    run();
  } else {
    enqueue(stream, std::function<void()>(keep()));
  }
}

}  // namespace cuda_on_cpu
