// Launches of kernels: what is checked before, and the blocks of a grid.

#include "cuda_on_cpu/launch.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "block.h"
#include "memory.h"
#include "runtime.h"

namespace cuda_on_cpu {
namespace {

std::map<const void*, size_t> dynamic_limits;  // where it was raised
uint64_t launches = 0;

/// Host threads that do the same work beside the caller.
class Team {
 public:
  ~Team() { stop(); }
  /// work() on so many host threads, one of them the caller's.
  void run(int workers, const std::function<void()>& work) {
    if (static_cast<int>(threads_.size()) != workers - 1) {
      stop();
      for (int i = 1; i < workers; ++i) threads_.emplace_back([this] { serve(); });
    }
    {
      const std::lock_guard lock(mutex_);
      work_ = &work;
      busy_ = workers - 1;
      ++round_;
    }
    wake_.notify_all();
    work();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (uint64_t seen = round_at_start_;;) {
      wake_.wait(lock, [&] { return round_ != seen || stopping_; });
      if (stopping_) return;
      seen = round_;
      lock.unlock();
      (*work_)();
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    threads_.clear();
    stopping_ = false;
    round_at_start_ = round_;
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void()>* work_ = nullptr;
  uint64_t round_ = 0, round_at_start_ = 0;
  int busy_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

/// The order of blocks: from the first, from the last, or in steps of a number that has no divisor in common with theirs.
class BlockOrder {
 public:
  BlockOrder(dim3 grid, const Options& options, uint64_t number)
      : grid_(grid), total_(uint64_t{grid.x} * grid.y * grid.z), order_(options.order) {
    if (order_ != Order::random) return;
    const uint64_t hash = (options.seed * 0x9e3779b97f4a7c15ULL ^ number) * 0xd1342543de82ef95ULL;
    start_ = hash % total_;
    step_ = (hash >> 20) % total_ | 1;
    while (std::gcd(step_, total_) != 1) ++step_;
  }
  uint64_t total() const { return total_; }
  uint3 operator[](uint64_t i) const {
    if (order_ == Order::reverse) i = total_ - 1 - i;
    if (order_ == Order::random)
      i = static_cast<uint64_t>((static_cast<unsigned __int128>(i) * step_ + start_) % total_);
    const uint64_t row = i / grid_.x;
    return {static_cast<unsigned>(i % grid_.x), static_cast<unsigned>(row % grid_.y),
            static_cast<unsigned>(row / grid_.y)};
  }

 private:
  dim3 grid_;
  uint64_t total_, start_ = 0, step_ = 1;
  Order order_;
};

void run_grid(const KernelCall& call, const cudaLaunchConfig_t& config) {
  if (const int bad = call.bad_pointer(); bad >= 0) {
    return break_device(
        cudaErrorIllegalAddress,
        "argument " + std::to_string(bad) + " of a kernel points to no memory of the device, or to freed memory");
  }
  static Team team;
  const Options options = *cuda_on_cpu_options();
  const BlockOrder blocks(config.gridDim, options, ++launches);
  const DeviceAccess access;
  std::atomic<uint64_t> next = 0;
  std::mutex mutex;
  Failure failure;
  const auto work = [&] {
    BlockRunner& runner = BlockRunner::mine();
    runner.begin_launch(call, config, options, launches);
    for (uint64_t i = next++; i < blocks.total(); i = next++) {
      if (runner.run(blocks[i])) continue;
      const std::lock_guard lock(mutex);
      if (failure.error == cudaSuccess) failure = runner.failure();
      next = blocks.total();
      break;
    }
    runner.end_launch();
  };
  if (options.workers > 1 && blocks.total() > 1) {
    team.run(options.workers, work);
  } else {
    work();
  }
  if (failure.error != cudaSuccess) break_device(failure.error, failure.message);
}

cudaError_t check(const cudaLaunchConfig_t& config, const void* kernel) {
  if (kernel == nullptr) return refuse(cudaErrorInvalidDeviceFunction, "launch: no kernel");
  if (!is_stream(config.stream)) return refuse(cudaErrorInvalidResourceHandle, "launch: not a stream");
  const dim3 grid = config.gridDim, block = config.blockDim;
  const auto text = [](dim3 d) {
    return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z);
  };
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > kMaxThreads || block.y > kMaxThreads || block.z > 64 ||
      block.x * block.y * block.z > kMaxThreads) {
    return refuse(cudaErrorInvalidConfiguration, "a block of " + text(block) + " threads");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffU || grid.y > 65535 || grid.z > 65535) {
    return refuse(cudaErrorInvalidConfiguration, "a grid of " + text(grid) + " blocks");
  }
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != cudaLaunchAttributeIgnore) {
      return refuse(cudaErrorNotSupported, "the emulation does not know this attribute of a launch");
    }
  }
  const auto raised = dynamic_limits.find(kernel);
  const size_t limit = raised == dynamic_limits.end() ? kStaticShared : raised->second;
  if (config.dynamicSmemBytes > limit) {
    return refuse(cudaErrorInvalidValue, std::to_string(config.dynamicSmemBytes) +
                                             " bytes of dynamic shared memory, where the kernel may have " +
                                             std::to_string(limit));
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t* config, const KernelCall& call) {
  return api_call([&] {
    if (config == nullptr) return refuse(cudaErrorInvalidValue, "launch: no configuration");
    if (const cudaError_t error = check(*config, call.kernel()); error != cudaSuccess) return error;
    if (const cudaError_t error = check_enqueue(config->stream); error != cudaSuccess) return error;
    enqueue(
        config->stream, [&] { run_grid(call, *config); },
        [&] { return [kept = std::shared_ptr<KernelCall>(call.clone()), copy = *config] { run_grid(*kept, copy); }; });
    launched(config->stream);
    return cudaSuccess;
  });
}

void forget_kernels() {
  dynamic_limits.clear();
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return api_call([&] {
    if (kernel == nullptr) return refuse(cudaErrorInvalidDeviceFunction, "cudaFuncSetAttribute: no kernel");
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || static_cast<size_t>(value) > cuda_on_cpu_options()->shared_bytes) {
          return refuse(cudaErrorInvalidValue, std::to_string(value) + " bytes of dynamic shared memory");
        }
        dynamic_limits[kernel] = static_cast<size_t>(value);
        return cudaSuccess;
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        return value >= -1 && value <= 100 ? cudaSuccess : refuse(cudaErrorInvalidValue, "cudaFuncSetAttribute");
    }
    return refuse(cudaErrorNotSupported, "the emulation does not know this attribute of a kernel");
  });
}
