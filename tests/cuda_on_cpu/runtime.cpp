// Errors and properties of the emulated device.

#include "runtime.h"

#include <algorithm>
#include <cstring>

#include "block.h"
#include "emulation.h"
#include "memory.h"

namespace cuda_on_cpu {
namespace {

constexpr int kMultiprocessors = 4;
constexpr int kThreadsOfMultiprocessor = 2048;
constexpr int kBlocksOfMultiprocessor = 32;
constexpr int kRegisters = 65536;
constexpr int kL2Bytes = 50 << 20;
constexpr int kMajor = 9, kMinor = 0;
constexpr int kMaxGridX = 0x7fffffff, kMaxGridYZ = 65535, kMaxBlockZ = 64;

cudaError_t broken = cudaSuccess;
cudaError_t explained = cudaSuccess;
std::string explanation;

const char* standard_text(cudaError_t error) {
  switch (error) {
#define KEEL_CUDA_TEXT(name, value, text) \
  case name:                              \
    return text;
    KEEL_CUDA_ERRORS(KEEL_CUDA_TEXT)
#undef KEEL_CUDA_TEXT
  }
  return "unrecognized error code";
}

}  // namespace

thread_local bool in_host_function = false;
thread_local cudaError_t last_error = cudaSuccess;

std::recursive_mutex& api_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

cudaError_t refuse(cudaError_t error, const std::string& reason) {
  explained = error;
  explanation = reason;
  return error;
}

void break_device(cudaError_t error, const std::string& reason) {
  if (broken == cudaSuccess) broken = refuse(error, reason);
}

cudaError_t device_error() {
  return broken;
}

void forget_errors() {
  broken = explained = last_error = cudaSuccess;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

void cuda_on_cpu_reset() {
  const std::lock_guard lock(api_mutex());
  forget_graphs();
  forget_streams();
  free_all();
  forget_kernels();
  forget_errors();
}

int64_t cuda_on_cpu_allocated_bytes() {
  const std::lock_guard lock(api_mutex());
  return static_cast<int64_t>(device_bytes_asked_for());
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(api_mutex());
  return device_error() != cudaSuccess ? device_error() : last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define KEEL_CUDA_NAME(name, value, text) \
  case name:                              \
    return #name;
    KEEL_CUDA_ERRORS(KEEL_CUDA_NAME)
#undef KEEL_CUDA_NAME
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const std::lock_guard lock(api_mutex());
  if (error == cudaSuccess || error != explained) return standard_text(error);
  thread_local std::string text;
  text = std::string(standard_text(error)) + " (" + explanation + ")";
  return text.c_str();
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  (void)cuda_on_cpu_options();  // what is wrong with them is said by the first call of a program
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return api_call([&] { return device == 0 ? cudaSuccess : refuse(cudaErrorInvalidDevice, "there is device 0 only"); });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api_call([&] {
    if (properties == nullptr) return refuse(cudaErrorInvalidValue, "cudaGetDeviceProperties: null");
    if (device != 0) return refuse(cudaErrorInvalidDevice, "there is device 0 only");
    *properties = {};
    std::strcpy(properties->name, "CUDA on CPU (emulated)");
    properties->totalGlobalMem = cuda_on_cpu_options()->memory_bytes;
    properties->sharedMemPerBlock = kStaticShared;
    properties->regsPerBlock = properties->regsPerMultiprocessor = kRegisters;
    properties->warpSize = warpSize;
    properties->maxThreadsPerBlock = kMaxThreads;
    std::ranges::copy(std::initializer_list{kMaxThreads, kMaxThreads, kMaxBlockZ}, properties->maxThreadsDim);
    std::ranges::copy(std::initializer_list{kMaxGridX, kMaxGridYZ, kMaxGridYZ}, properties->maxGridSize);
    properties->major = kMajor;
    properties->minor = kMinor;
    properties->multiProcessorCount = kMultiprocessors;
    properties->canMapHostMemory = properties->unifiedAddressing = 1;
    properties->managedMemory = properties->concurrentManagedAccess = 1;
    properties->concurrentKernels = properties->hostRegisterSupported = 1;
    properties->asyncEngineCount = 1;
    properties->l2CacheSize = kL2Bytes;
    properties->maxThreadsPerMultiProcessor = kThreadsOfMultiprocessor;
    properties->maxBlocksPerMultiProcessor = kBlocksOfMultiprocessor;
    properties->sharedMemPerMultiprocessor = kSharedOfMultiprocessor;
    properties->sharedMemPerBlockOptin = cuda_on_cpu_options()->shared_bytes;
    properties->reservedSharedMemPerBlock = kSharedReserved;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return api_call([&] {
    if (value == nullptr) return refuse(cudaErrorInvalidValue, "cudaDeviceGetAttribute: null");
    if (device != 0) return refuse(cudaErrorInvalidDevice, "there is device 0 only");
    const auto answer = [&](auto number) {
      *value = static_cast<int>(number);
      return cudaSuccess;
    };
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
      case cudaDevAttrMaxBlockDimX:
      case cudaDevAttrMaxBlockDimY:
        return answer(kMaxThreads);
      case cudaDevAttrMaxBlockDimZ:
        return answer(kMaxBlockZ);
      case cudaDevAttrMaxGridDimX:
        return answer(kMaxGridX);
      case cudaDevAttrMaxGridDimY:
      case cudaDevAttrMaxGridDimZ:
        return answer(kMaxGridYZ);
      case cudaDevAttrMaxSharedMemoryPerBlock:
        return answer(kStaticShared);
      case cudaDevAttrWarpSize:
        return answer(warpSize);
      case cudaDevAttrMaxRegistersPerBlock:
        return answer(kRegisters);
      case cudaDevAttrMultiProcessorCount:
        return answer(kMultiprocessors);
      case cudaDevAttrL2CacheSize:
        return answer(kL2Bytes);
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        return answer(kThreadsOfMultiprocessor);
      case cudaDevAttrUnifiedAddressing:
      case cudaDevAttrManagedMemory:
      case cudaDevAttrConcurrentManagedAccess:
        return answer(1);
      case cudaDevAttrComputeCapabilityMajor:
        return answer(kMajor);
      case cudaDevAttrComputeCapabilityMinor:
        return answer(kMinor);
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return answer(kSharedOfMultiprocessor);
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return answer(cuda_on_cpu_options()->shared_bytes);
      case cudaDevAttrMaxBlocksPerMultiprocessor:
        return answer(kBlocksOfMultiprocessor);
      case cudaDevAttrReservedSharedMemoryPerBlock:
        return answer(kSharedReserved);
      case cudaDevAttrCooperativeLaunch:
      case cudaDevAttrMemoryPoolsSupported:
      case cudaDevAttrClusterLaunch:
        return answer(0);
    }
    return refuse(cudaErrorInvalidValue, "the emulation does not know this attribute of a device");
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api_call_outside_capture("cudaDeviceSynchronize", [] {
    synchronize_device();
    return device_error();
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          size_t dynamic_bytes) {
  return api_call([&] {
    if (blocks == nullptr || kernel == nullptr || threads < 1) {
      return refuse(cudaErrorInvalidValue, "cudaOccupancyMaxActiveBlocksPerMultiprocessor: null, or no threads");
    }
    if (threads > kMaxThreads || dynamic_bytes > kMaxShared) {
      *blocks = 0;
      return cudaSuccess;
    }
    const int by_threads = kThreadsOfMultiprocessor / ((threads + warpSize - 1) / warpSize * warpSize);
    const auto by_shared = static_cast<int>(kSharedOfMultiprocessor / (dynamic_bytes + kSharedReserved));
    *blocks = std::min({by_threads, by_shared, kBlocksOfMultiprocessor});
    return cudaSuccess;
  });
}
