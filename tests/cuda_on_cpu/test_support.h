#pragma once

// For the tests of the emulation.

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "emulation.h"

namespace cuda_on_cpu {

/// Each test finds a new device with the options that a program starts with.
class EmulationTest : public testing::Test {
 protected:
  EmulationTest() {
    options = {};
    cuda_on_cpu_reset();
  }
  ~EmulationTest() override {
    cuda_on_cpu_reset();
    options = {};
  }
  Options& options = *cuda_on_cpu_options();

  /// Runs `body` once for each order of threads, with blocks on one host thread and on two.
  template <class Body>
  void in_all_orders(Body body) {
    for (const int workers : {1, 2}) {
      for (const auto& [order, name] : {std::pair{Order::forward, "forward"}, std::pair{Order::reverse, "reverse"},
                                        std::pair{Order::random, "random"}}) {
        SCOPED_TRACE(std::string(name) + ", " + std::to_string(workers) + " workers");
        options.order = order;
        options.workers = workers;
        body();
      }
    }
  }
};

/// Device memory with what a vector holds.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) { cudaMalloc(&data_, size * sizeof(T)); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() { return data_; }
  std::vector<T> host() const {
    std::vector<T> values(size_);
    cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  size_t size_;
  T* data_ = nullptr;
};

/// A launch in the default stream, or another.
struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;

  template <class... Parameters, class... Arguments>
  cudaError_t operator()(void (*kernel)(Parameters...), Arguments... arguments) const {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
  }
};

/// A block of static shared memory: what KEEL_SHARED (device.cuh) makes.
#define SHARED_FOR_TEST(T, name, count) \
  static const char name##_key = 0;     \
  T(&name)[count] = *static_cast<T(*)[count]>(::cuda_on_cpu::block_shared(&name##_key, sizeof(T[count]), alignof(T)))

}  // namespace cuda_on_cpu
