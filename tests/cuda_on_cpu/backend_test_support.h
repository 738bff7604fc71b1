#pragma once

// For tests of the emulated backend as programs open it.

#include "emulation.h"
#include "keel/base/error.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel::testing {

inline const DeviceChoice kEmulated{Device::cuda, CudaBackend::emulated};

/// Of the backend, once a context has opened it.
inline cuda_on_cpu::Options& emulation_options() {
  return *reinterpret_cast<cuda_on_cpu::Options* (*)()>(detail::cuda_symbol("cuda_on_cpu_options"))();
}
inline uint64_t graph_launches() {
  return reinterpret_cast<uint64_t (*)()>(detail::cuda_symbol("cuda_on_cpu_graph_launches"))();
}

/// While it lives, the device's streams run as late as they may.
class LazyStreams {
 public:
  LazyStreams() { emulation_options().streams = cuda_on_cpu::Streams::lazy; }
  ~LazyStreams() { emulation_options().streams = before_; }
  LazyStreams(const LazyStreams&) = delete;
  LazyStreams& operator=(const LazyStreams&) = delete;

 private:
  cuda_on_cpu::Streams before_ = emulation_options().streams;
};

ErrorKind kind_of(auto function) {
  try {
    function();
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::internal;
}

}  // namespace keel::testing
