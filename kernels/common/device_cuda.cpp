// Devices, their memory and streams: cuda_device.h by the CUDA runtime.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "keel/base/error.h"
#include "keel/base/version.h"
#include "keel/kernels/common/cuda_queue.h"
#include "keel/kernels/common/environment.h"

namespace keel {

namespace {

std::atomic<int64_t> replaced_memories = 0;

/// Memory in place of what there is, which what is enqueued may still use: cudaFree waits for it.
void replace(void*& memory, int64_t& held, int64_t wanted, const char* what) {
  if (memory != nullptr) ++replaced_memories;
  free_counted(std::exchange(memory, nullptr));
  held = 0;
  memory = allocate_counted(wanted, what);
  held = wanted;
}

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // it is reported here, not once more by the next call
  const ErrorKind kind = error == cudaErrorMemoryAllocation ? ErrorKind::memory : ErrorKind::device;
  throw Error(kind, std::string("CUDA: ") + cudaGetErrorString(error), what);
}

extern "C" __attribute__((visibility("default"))) const char* keel_cuda_version() {
  return KEEL_VERSION;
}

int keel_cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {  // no driver, or one too old for this runtime
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

namespace {

constexpr const char* kCpuRuns = "--device cpu runs everywhere";

void require_device(int index) {
  const std::string name = "cuda:" + std::to_string(index);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (error != cudaSuccess && error != cudaErrorNoDevice) {
    throw Error(ErrorKind::device, std::string("there is no GPU here that CUDA can use: ") + cudaGetErrorString(error),
                name, kCpuRuns);
  }
  if (count == 0) throw Error(ErrorKind::device, "there is no GPU here that CUDA can use", name, kCpuRuns);
  if (index < 0 || index >= count) {
    throw Error(ErrorKind::device, "there is no GPU with this number", name,
                "the last one is cuda:" + std::to_string(count - 1));
  }
}

int attribute(int device, cudaDeviceAttr wanted) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, wanted, device), "device attributes");
  return value;
}

void require_kernels(CudaQueue& queue) {
  try {
    run_nothing(queue);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    const int major = attribute(queue.device, cudaDevAttrComputeCapabilityMajor),
              minor = attribute(queue.device, cudaDevAttrComputeCapabilityMinor);
    throw Error(ErrorKind::device,
                std::string("no kernel runs on this GPU, of compute capability ") + std::to_string(major) + "." +
                    std::to_string(minor) + ": " + error.what(),
                "cuda:" + std::to_string(queue.device),
                "8.0 is the least, and CMAKE_CUDA_ARCHITECTURES says what a build is for");
  }
}

}  // namespace

CudaQueue* keel_cuda_open_queue(int index) {
  require_device(index);
  check(cudaSetDevice(index), "cudaSetDevice");
  std::unique_ptr<CudaQueue, decltype(&keel_cuda_close_queue)> queue(new CudaQueue, keel_cuda_close_queue);
  queue->device = index;
  queue->multiprocessors = attribute(index, cudaDevAttrMultiProcessorCount);
  queue->shared_bytes = attribute(index, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  check(cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking), "cudaStreamCreate");
  require_kernels(*queue);
  return queue.release();
}

void keel_cuda_close_queue(CudaQueue* queue) {
  if (queue == nullptr) return;
  // Errors have been met by synchronize(), or no one asked.
  if (queue->stream != nullptr) (void)cudaStreamSynchronize(queue->stream);
  queue->products.reset();
  free_counted(queue->scratch);
  free_counted(queue->sums);
  if (queue->stream != nullptr) (void)cudaStreamDestroy(queue->stream);
  delete queue;
}

CudaDeviceInfo keel_cuda_device_info(CudaQueue& queue) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, queue.device), "cudaGetDeviceProperties");
  size_t free_bytes = 0, all_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  CudaDeviceInfo info;
  static_assert(sizeof info.name == sizeof properties.name);
  std::memcpy(info.name, properties.name, sizeof info.name);
  info.compute_capability = 10 * properties.major + properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(all_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  info.shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  info.l2_bytes = properties.l2CacheSize;
  return info;
}

void keel_cuda_synchronize(CudaQueue& queue) {
  check(cudaStreamSynchronize(queue.stream), "a computation");
}

void* keel_cuda_allocate_shared(CudaQueue&, int64_t bytes) {
  void* memory = nullptr;
  check(cudaMallocManaged(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaMemAttachGlobal),
        "shared memory");
  return memory;
}

void* grown(void*& memory, int64_t& bytes, int64_t wanted) {
  if (bytes < wanted) replace(memory, bytes, wanted, "scratch memory");
  return memory;
}

/// Whether memory is what host and device share, as tests of operations have it (support/test_device.h).
static bool shares_memory() {
  return environment_switch("KEEL_CUDA_SHARED_MEMORY", false);
}

void* keel_cuda_allocate(CudaQueue& queue, int64_t bytes) {
  if (shares_memory()) return keel_cuda_allocate_shared(queue, bytes);
  return allocate_counted(std::max<int64_t>(bytes, 1), "device memory");
}

void keel_cuda_release(CudaQueue&, void* memory) {
  free_counted(memory);
}

void* keel_cuda_scratch(CudaQueue& queue, int64_t bytes) {
  return grown(queue.scratch, queue.scratch_bytes, bytes);
}

void* KeptMemory::at_least(int64_t bytes) {
  if (bytes_ < bytes) replace(memory_, bytes_, bytes, "memory of an operation");
  return memory_;
}

void* keel_cuda_allocate_pinned(CudaQueue&, int64_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "page-locked memory of the host");
  return memory;
}

void keel_cuda_release_pinned(CudaQueue& queue, void* memory) {
  (void)cudaStreamSynchronize(queue.stream);
  (void)cudaFreeHost(memory);
}

void keel_cuda_copy_to_device(CudaQueue& queue, const void* host, void* device, int64_t bytes) {
  check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, queue.stream),
        "copy to the device");
  // What is pageable has been read by now.
  if (shares_memory()) keel_cuda_synchronize(queue);
}

void keel_cuda_copy_to_host(CudaQueue& queue, const void* device, void* host, int64_t bytes) {
  check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, queue.stream),
        "copy to the host");
}

void keel_cuda_zero(CudaQueue& queue, void* device, int64_t bytes) {
  check(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), queue.stream), "cudaMemset");
}

struct CudaMark {
  cudaEvent_t event = nullptr;
};

CudaMark* keel_cuda_make_mark(CudaQueue&) {
  auto mark = std::make_unique<CudaMark>();
  check(cudaEventCreateWithFlags(&mark->event, cudaEventBlockingSync), "cudaEventCreate");
  return mark.release();
}

void keel_cuda_drop_mark(CudaMark* mark) {
  (void)cudaEventDestroy(mark->event);
  delete mark;
}

void keel_cuda_set_mark(CudaQueue& queue, CudaMark& mark) {
  check(cudaEventRecord(mark.event, queue.stream), "cudaEventRecord");
}

void keel_cuda_wait_for_mark(CudaMark& mark) {
  check(cudaEventSynchronize(mark.event), "a computation");
}

double keel_cuda_seconds_between(const CudaMark& from, const CudaMark& to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from.event, to.event), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

struct CudaRecording {
  cudaGraphExec_t executable = nullptr;
  ~CudaRecording() { (void)cudaGraphExecDestroy(executable); }
};

void keel_cuda_begin_recording(CudaQueue& queue) {
  check(cudaStreamBeginCapture(queue.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

CudaRecording* keel_cuda_end_recording(CudaQueue& queue) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(queue.stream, &graph), "cudaStreamEndCapture");
  auto recording = std::make_unique<CudaRecording>();
  const cudaError_t made = cudaGraphInstantiate(&recording->executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(made, "cudaGraphInstantiate");
  return recording.release();
}

void keel_cuda_cancel_recording(CudaQueue& queue) {
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(queue.stream, &graph) == cudaSuccess) (void)cudaGraphDestroy(graph);
  (void)cudaGetLastError();
}

void keel_cuda_replay(CudaQueue& queue, CudaRecording& recording) {
  check(cudaGraphLaunch(recording.executable, queue.stream), "cudaGraphLaunch");
}

void keel_cuda_drop_recording(CudaRecording* recording) {
  delete recording;
}

int64_t keel_cuda_replaced_memories() {
  return replaced_memories;
}

TimeMarks::~TimeMarks() {
  for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
}

int64_t TimeMarks::record(cudaStream_t stream) {
  if (free_.empty()) {
    cudaEvent_t made = nullptr;
    check(cudaEventCreate(&made), "cudaEventCreate");
    free_.push_back(std::ssize(events_));
    events_.push_back(made);
  }
  check(cudaEventRecord(events_[free_.back()], stream), "cudaEventRecord");
  const int64_t mark = free_.back();
  free_.pop_back();
  return mark;
}

double TimeMarks::seconds_between(int64_t begin, int64_t end) {
  check(cudaEventSynchronize(events_[begin]), "a computation");
  check(cudaEventSynchronize(events_[end]), "a computation");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, events_[begin], events_[end]), "cudaEventElapsedTime");
  free_.insert(free_.end(), {begin, end});
  return milliseconds * 1e-3;
}

int64_t keel_cuda_mark_time(CudaQueue& queue) {
  return queue.marks.record(queue.stream);
}

double keel_cuda_seconds_between_times(CudaQueue& queue, int64_t begin, int64_t end) {
  return queue.marks.seconds_between(begin, end);
}

OperationCost* keel_cuda_costs_on_device(CudaQueue& queue) {
  return static_cast<OperationCost*>(queue.costs.at_least(kCostsOnDevice * sizeof(OperationCost)));
}

}  // namespace keel
