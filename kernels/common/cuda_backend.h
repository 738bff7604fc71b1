#pragma once

#include <atomic>
#include <utility>

#include "keel/base/export.h"

namespace keel {

/// The CUDA backend is a library of its own, opened when a device is wanted: what runs on the CPU needs none of CUDA's
/// libraries and does not wait for them. libkeel_cuda.so is made by nvcc; libkeel_cuda_emulated.so is the same sources
/// on a runtime that runs device code on the CPU (tests/cuda_on_cpu). Either lies beside libkeel.so.
enum class CudaBackend { device, emulated };

/// Opens the backend, at the first call only. Error(device) if this build has none, a library that it needs is missing,
/// it belongs to another version, or the other one is open already.
KEEL_API void open_cuda_backend(CudaBackend backend);

/// Whether its library is there. Opens nothing.
KEEL_API bool has_cuda_backend(CudaBackend backend);

/// How many GPUs CUDA can use here; 0 where the backend cannot be opened. Opens it.
KEEL_API int cuda_device_count();

/// A device, its stream and what is kept for it; the backend's own (cuda_queue.h).
struct CudaQueue;

namespace detail {
/// The address of a function of the backend that is open. Error(device) if none is, Error(internal) if it lacks this one.
KEEL_API void* cuda_symbol(const char* name);
}  // namespace detail

/// A function of the backend, found when it is first called.
template <class Function>
class CudaFunction;
template <class Result, class... Arguments>
class CudaFunction<Result(Arguments...)> {
 public:
  constexpr explicit CudaFunction(const char* symbol) : symbol_(symbol) {}
  Result operator()(Arguments... arguments) {
    Pointer function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) {
      function = reinterpret_cast<Pointer>(detail::cuda_symbol(symbol_));
      function_.store(function, std::memory_order_relaxed);
    }
    return function(std::forward<Arguments>(arguments)...);
  }

 private:
  using Pointer = Result (*)(Arguments...);
  const char* symbol_;
  std::atomic<Pointer> function_ = nullptr;
};

}  // namespace keel

/// An operation's entry in the backend, for its header <operation>_cuda.h, inside namespace keel:
///
///   KEEL_CUDA_FUNCTION(void, seam_forward, CudaQueue&, const SeamForward&)
///
/// The library calls cuda::seam_forward(ctx.queue(), seam); the backend (<operation>_cuda.cu) defines
/// `void keel_cuda_seam_forward(CudaQueue& queue, const SeamForward& seam)` in namespace keel.
#define KEEL_CUDA_FUNCTION(result, name, ...)                                             \
  extern "C" __attribute__((visibility("default"))) result keel_cuda_##name(__VA_ARGS__); \
  namespace cuda {                                                                        \
  inline constinit CudaFunction<result(__VA_ARGS__)> name{"keel_cuda_" #name};            \
  }
