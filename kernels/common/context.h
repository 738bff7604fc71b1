#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

enum class Device { cpu, cuda };

/// A device of this machine.
struct DeviceChoice {
  Device device = Device::cpu;
  CudaBackend backend = CudaBackend::device;  ///< of Device::cuda
  int index = 0;                              ///< of several GPUs
};

class OperationProfile;

/// What an operation runs on: a device, its threads or stream, scratch memory, and what is cached for it (matrix
/// product primitives). Every operation takes one as its first argument and only enqueues: nothing is returned to the
/// host except through memory that the caller reads after synchronize(). One Context is used by one thread at a time.
class KEEL_API Context {
 public:
  /// A CPU context with this many threads (>= 1). Error(device) if the system does not give that many.
  explicit Context(int threads, Isa isa = best_isa());
  /// Of this device; on a GPU threads are the host's. Error(device) if there is none, (usage) for a KEEL_CUDA_GRAPH that
  /// is neither 0 nor 1.
  Context(const DeviceChoice& choice, int threads);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device device() const noexcept { return queue_ == nullptr ? Device::cpu : Device::cuda; }
  /// Whether the CPU stands for a GPU, for tests: how fast it is says nothing.
  bool is_emulated() const noexcept { return is_emulated_; }
  /// "cpu"; of a GPU what its driver calls it.
  std::string name();
  /// Of a GPU.
  CudaQueue& queue() noexcept { return *queue_; }
  int threads() const noexcept { return threads_; }
  Threads team() noexcept { return {team_.get(), threads_}; }
  /// The context of one of the threads, thread < threads() as made, for operations on a part of the data: it has that one
  /// thread, and scratch memory and cached products of its own. That of a worker, or of a GPU, is
  /// itself.
  Context& worker(int thread) { return workers_.empty() ? *this : *workers_[thread]; }
  Isa isa() const noexcept { return isa_; }

  /// Returns once everything enqueued so far has run (at once on a CPU). Error(device) if something of it failed.
  void synchronize();

  /// Memory of the device for an operation to use while it runs: at least this many bytes, aligned to 64, holding
  /// whatever was left there. All operations share it; it is kept and only ever grown, so that a steady step allocates
  /// nothing. On a CPU what runs several operations may use it across those that take none: all but attention,
  /// attention_backward and log_sum. Error(memory).
  void* scratch(int64_t bytes);
  int64_t scratch_bytes() const noexcept { return scratch_bytes_; }

  /// Where operations report what they do and how long they take (operation_profile.h); null, the default: nowhere. It
  /// outlives its use here, and of a GPU's context is taken away before that ends.
  void set_profile(OperationProfile* profile);
  OperationProfile* profile() const noexcept { return profile_; }

  /// The cache of kernels/matmul, made there; opaque here so that no other operation sees its library.
  struct MatmulCache;
  MatmulCache& matmul_cache() { return *matmul_cache_; }

 private:
  struct Worker {};
  Context(Worker, Isa isa);

  int threads_;
  Isa isa_;
  bool is_emulated_ = false;
  struct Free {
    void operator()(void* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<void, Free> scratch_;
  int64_t scratch_bytes_ = 0;
  std::unique_ptr<MatmulCache> matmul_cache_;
  OperationProfile* profile_ = nullptr;
  struct CloseQueue {
    void operator()(CudaQueue* queue) const;
  };
  std::unique_ptr<CudaQueue, CloseQueue> queue_;
  std::unique_ptr<ThreadTeam> team_;
  std::vector<std::unique_ptr<Context>> workers_;
};

}  // namespace keel
