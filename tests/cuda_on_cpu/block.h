#pragma once

// Runs the blocks of a grid, one after another on one host thread, each of their threads on a fiber.
//
// A thread runs until it waits, for the block or for its warp, or ends; then the next one of Options::order runs. The
// last one that arrives does what a warp does together, for all. A thread that starts when another has ended takes over
// its stack without a change, so that kernels without barriers are loops.

#include <memory>
#include <string>
#include <vector>

#include "cuda_on_cpu/launch.h"
#include "cuda_on_cpu/thread.h"
#include "cuda_on_cpu/warp.h"
#include "emulation.h"
#include "fiber.h"

namespace cuda_on_cpu {

inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxWarps = kMaxThreads / warpSize;
inline constexpr size_t kStaticShared = 48 * 1024;  ///< static shared memory of a block
inline constexpr size_t kSharedOfMultiprocessor = 228 * 1024;
inline constexpr size_t kSharedReserved = 1024;  ///< of each block, by the system
inline constexpr size_t kMaxShared = kSharedOfMultiprocessor - kSharedReserved;

struct Failure {
  cudaError_t error = cudaSuccess;
  std::string message;
};

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;
  /// That of this host thread.
  static BlockRunner& mine();

  void begin_launch(const KernelCall& call, const cudaLaunchConfig_t& config, const Options& options, uint64_t number);
  /// Whether it came to its end; the reason is in failure().
  bool run(uint3 block);
  void end_launch();
  Failure& failure() { return failure_; }

  // What a running thread calls.
  int barrier(int vote, Place place);
  void collective(const WarpRequest& request, Place place);
  unsigned live_lanes() const { return warps_[self->warp].live; }
  void* static_shared(const void* key, size_t bytes, size_t align);
  void* dynamic_shared() { return area_ + kStaticArea; }
  bool is_shared(const void* address) const;
  [[noreturn]] void fail(cudaError_t error, const std::string& what, Place place);

 private:
  struct Warp {
    unsigned live, waiting, ready;
    unsigned phase;  ///< counts what its lanes did together
  };
  struct SharedArray {
    const void* key;
    char* memory;
    size_t bytes;
  };
  /// Addresses for ThreadSanitizer: one a parity, as one alone would order what two barriers in a row do not.
  struct SyncPoints {
    char block[2];
    char warp[kMaxWarps][2];
  };
  static constexpr size_t kStaticArea = kStaticShared + 16 * 1024;  // with gaps between arrays
  static constexpr size_t kArea = kStaticArea + kMaxShared + 1024;

  void lay_out(uint3 block);
  void lay_out_shared();
  void clean_up();
  static void fiber_entry();
  [[noreturn]] void run_threads();
  void end(Thread& thread);
  Thread* pick();
  Thread* take(unsigned warp, unsigned lane);
  void start(Thread& thread);
  void go_on_with(Thread& thread);
  void suspend(Thread& thread);
  void resume(Thread& from, Thread& to, bool leaving_for_good);
  [[noreturn]] void leave(bool for_good);
  bool complete(Warp& warp, unsigned first_thread, unsigned mask);
  [[noreturn]] void report_deadlock();
  Fiber& fiber_of(const Thread& thread);
  uint64_t random();

  const KernelCall* call_ = nullptr;
  Order order_ = Order::forward;
  uint64_t seed_ = 0, random_ = 1, ordinal_ = 0;
  size_t dynamic_bytes_ = 0;
  int count_ = 0, live_ = 0, arrived_ = 0, votes_ = 0, last_votes_ = 0;
  unsigned phase_ = 0, ready_warps_ = 0, current_ = 0;
  Place barrier_place_{};
  Failure failure_;

  std::vector<Thread> threads_;
  Warp warps_[kMaxWarps];
  std::unique_ptr<AsyncCopy[]> async_copies_;

  Fiber host_;
  std::vector<Fiber> fibers_;
  std::vector<int> free_fibers_;
  char* stacks_ = nullptr;

  char* arena_ = nullptr;  ///< shared memory; of several blocks for ThreadSanitizer
  size_t arena_used_ = 0;
  char* area_ = nullptr;  ///< of this block
  size_t static_bytes_ = 0, static_extent_ = 0;
  std::vector<SharedArray> shared_arrays_;
  SyncPoints own_sync_points_;
  SyncPoints* sync_ = &own_sync_points_;
  char launch_start_, launch_end_;  ///< for ThreadSanitizer
};

/// Does what the lanes asked for; requests[i] is that of lane i, for the lanes of the set.
void perform(const WarpRequest* const* requests, unsigned lanes);

/// "file:line", without folders.
std::string to_string(Place place);

}  // namespace cuda_on_cpu
