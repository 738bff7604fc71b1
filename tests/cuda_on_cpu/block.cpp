#include "block.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "memory.h"
#include "sanitizers.h"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace cuda_on_cpu {

constinit thread_local Thread* self = nullptr;

namespace {

constexpr size_t kGuard = 4096;
constexpr size_t kStack = (kAddressSanitizer || kThreadSanitizer ? 256 : 128) * 1024;
// ThreadSanitizer sees no race between threads on one fiber: each has its own, and each of two blocks in a row.
constexpr int kFibers = kThreadSanitizer ? 2 * kMaxThreads : kMaxThreads;
constexpr size_t kArenaOfThreadSanitizer = size_t{16} << 20;
constexpr size_t kGap = 32;  // between static arrays, poisoned

constinit thread_local BlockRunner* runner = nullptr;
char fences;  // for ThreadSanitizer

void* map(size_t bytes, int protection) {
  void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fputs("CUDA on CPU: no address space\n", stderr);
    std::abort();
  }
  return memory;
}

std::string to_string(const char* name, uint3 index) {
  return std::string(name) + " (" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ")";
}

BlockRunner& running(Place place) {
  if (self != nullptr) return *runner;
  std::fprintf(stderr, "CUDA on CPU: host code called a device function (%s)\n", to_string(place).c_str());
  std::abort();
}

}  // namespace

std::string to_string(Place place) {
  const char* name = std::strrchr(place.file, '/');
  return std::string(name == nullptr ? place.file : name + 1) + ":" + std::to_string(place.line);
}

BlockRunner::BlockRunner()
    : threads_(kMaxThreads), async_copies_(new AsyncCopy[kMaxThreads * kMaxAsyncCopies]), fibers_(kFibers) {
  stacks_ = static_cast<char*>(map(kFibers * (kStack + kGuard), PROT_NONE));
  arena_ = static_cast<char*>(map(kThreadSanitizer ? kArenaOfThreadSanitizer : kArea, PROT_READ | PROT_WRITE));
  free_fibers_.reserve(kFibers);
  for (int i = kFibers - 1; i >= 0; --i) free_fibers_.push_back(i);
  poison(arena_, kThreadSanitizer ? kArenaOfThreadSanitizer : kArea);
}

BlockRunner::~BlockRunner() {
  unpoison(arena_, kThreadSanitizer ? kArenaOfThreadSanitizer : kArea);
  munmap(arena_, kThreadSanitizer ? kArenaOfThreadSanitizer : kArea);
  munmap(stacks_, kFibers * (kStack + kGuard));
}

BlockRunner& BlockRunner::mine() {
  thread_local BlockRunner own;
  return own;
}

// ---- a launch and its blocks

void BlockRunner::begin_launch(const KernelCall& call, const cudaLaunchConfig_t& config, const Options& options,
                               uint64_t number) {
  call_ = &call;
  order_ = options.order;
  seed_ = options.seed * 0x9e3779b97f4a7c15ULL + number;
  dynamic_bytes_ = config.dynamicSmemBytes;
  failure_ = {};
  runner = this;
  blockDim = config.blockDim;
  gridDim = config.gridDim;
  count_ = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  describe_host(host_);
  release(&launch_start_);
}

void BlockRunner::end_launch() {
  acquire(&launch_end_);
  runner = nullptr;
}

bool BlockRunner::run(uint3 block) {
  lay_out(block);
  Thread* first = pick();
  go_on_with(*first);
  first->fiber = &fiber_of(*first);
  prepare(*first->fiber, fiber_entry, static_cast<size_t>(first->fiber - fibers_.data()) * 192 % 4096);
  change(host_, *first->fiber);
  self = nullptr;
  clean_up();
  return failure_.error == cudaSuccess;
}

void BlockRunner::lay_out(uint3 block) {
  blockIdx = block;
  random_ = (seed_ ^ (uint64_t{block.z} << 42 ^ uint64_t{block.y} << 21 ^ block.x)) * 0xd1342543de82ef95ULL | 1;
  ++ordinal_;
  live_ = count_;
  arrived_ = votes_ = 0;
  phase_ = current_ = 0;
  lay_out_shared();
  const int warps = (count_ + warpSize - 1) / warpSize;
  ready_warps_ = warps == kMaxWarps ? ~0U : (1U << warps) - 1;
  for (int w = 0; w < warps; ++w) {
    const int lanes = std::min(count_ - w * warpSize, warpSize);
    const unsigned all = lanes == warpSize ? ~0U : (1U << lanes) - 1;
    warps_[w] = {all, 0, all, 0};
  }
  uint3 index{0, 0, 0};
  for (int i = 0; i < count_; ++i) {
    Thread& thread = threads_[i];
    thread.index = index;
    thread.linear = static_cast<uint16_t>(i);
    thread.lane = static_cast<uint8_t>(i % warpSize);
    thread.warp = static_cast<uint8_t>(i / warpSize);
    thread.state = Thread::runs;
    thread.async_copies = 0;
    thread.async_group = 0;
    thread.fiber = nullptr;
    thread.async_copy = &async_copies_[i * kMaxAsyncCopies];
    if (++index.x == blockDim.x) {
      index.x = 0;
      if (++index.y == blockDim.y) {
        index.y = 0;
        ++index.z;
      }
    }
  }
}

// ThreadSanitizer knows of no order between blocks, so what they use must lie at addresses of their own; when these run
// out, the blocks so far are ordered before the ones to come.
void BlockRunner::lay_out_shared() {
  if constexpr (kThreadSanitizer) {
    const size_t needed = kStaticArea + (dynamic_bytes_ + sizeof(SyncPoints) + 1023) / 1024 * 1024;
    if (arena_used_ + needed > kArenaOfThreadSanitizer) {
      arena_used_ = 0;
      acquire(&launch_end_);
      release(&launch_start_);
    }
    area_ = arena_ + arena_used_;
    arena_used_ += needed;
    sync_ = reinterpret_cast<SyncPoints*>(area_ + needed - sizeof(SyncPoints));
  } else {
    area_ = arena_;
  }
  static_bytes_ = static_extent_ = 0;
  shared_arrays_.clear();
  if (dynamic_bytes_ > 0) {
    unpoison(area_ + kStaticArea, dynamic_bytes_);
    fill_with_nan(area_ + kStaticArea, dynamic_bytes_);
  }
}

void BlockRunner::clean_up() {
  poison(area_, static_extent_);
  poison(area_ + kStaticArea, dynamic_bytes_);
  if (failure_.error == cudaSuccess) return;
  // Some threads have stopped for good in the middle of a function.
  free_fibers_.clear();
  for (int i = kFibers - 1; i >= 0; --i) {
    Fiber& fiber = fibers_[i];
    free_fibers_.push_back(i);
    if (fiber.stack == nullptr) continue;
    unpoison(fiber.stack, fiber.stack_bytes);
#if defined(KEEL_EMULATION_TSAN)
    __tsan_destroy_fiber(fiber.tsan);
    fiber.tsan = __tsan_create_fiber(0);
#endif
  }
}

Fiber& BlockRunner::fiber_of(const Thread& thread) {
  int index = 0;
  if constexpr (kThreadSanitizer) {
    index = thread.linear + (ordinal_ % 2 == 0 ? 0 : kMaxThreads);
  } else {
    index = free_fibers_.back();
    free_fibers_.pop_back();
  }
  Fiber& fiber = fibers_[index];
  if (fiber.stack == nullptr) {
    fiber.stack = stacks_ + static_cast<size_t>(index) * (kStack + kGuard) + kGuard;
    fiber.stack_bytes = kStack;
    mprotect(fiber.stack, kStack, PROT_READ | PROT_WRITE);
#if defined(KEEL_EMULATION_TSAN)
    fiber.tsan = __tsan_create_fiber(0);
#endif
  }
  return fiber;
}

// ---- which thread runs

uint64_t BlockRunner::random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_ >> 32;
}

Thread* BlockRunner::take(unsigned warp, unsigned lane) {
  Warp& w = warps_[warp];
  w.ready &= ~(1U << lane);
  if (w.ready == 0) ready_warps_ &= ~(1U << warp);
  return &threads_[warp * warpSize + lane];
}

Thread* BlockRunner::pick() {
  if (ready_warps_ == 0) return nullptr;
  const auto after = [](unsigned bits, unsigned index) { return bits & ~((2U << index) - 1); };
  const auto last = [](unsigned bits) { return 31U - static_cast<unsigned>(std::countl_zero(bits)); };
  const auto first = [](unsigned bits) { return static_cast<unsigned>(std::countr_zero(bits)); };
  const auto any = [this](unsigned bits) {
    for (uint64_t skip = random() % static_cast<unsigned>(std::popcount(bits)); skip > 0; --skip) bits &= bits - 1;
    return static_cast<unsigned>(std::countr_zero(bits));
  };
  unsigned warp = current_ / warpSize;
  switch (order_) {
    case Order::forward:
      if (const unsigned higher = after(warps_[warp].ready, current_ % warpSize); higher != 0) {
        return take(warp, first(higher));
      }
      warp = first(after(ready_warps_, warp) != 0 ? after(ready_warps_, warp) : ready_warps_);
      return take(warp, first(warps_[warp].ready));
    case Order::reverse:
      if (warps_[warp].ready == 0) warp = last(ready_warps_);
      return take(warp, last(warps_[warp].ready));
    case Order::random:
      break;
  }
  warp = any(ready_warps_);
  return take(warp, any(warps_[warp].ready));
}

void BlockRunner::go_on_with(Thread& thread) {
  self = &thread;
  threadIdx = thread.index;
  current_ = thread.linear;
}

void BlockRunner::resume(Thread& from, Thread& to, bool leaving_for_good) {
  go_on_with(to);
  if (to.fiber == nullptr) {
    to.fiber = &fiber_of(to);
    // Stacks that begin at equal offsets evict each other from the cache: 14 ns a change instead of 4.
    prepare(*to.fiber, fiber_entry, static_cast<size_t>(to.fiber - fibers_.data()) * 192 % 4096);
  }
  change(*from.fiber, *to.fiber, leaving_for_good);
}

void BlockRunner::suspend(Thread& thread) {
  Thread* next = pick();
  if (next == nullptr) report_deadlock();
  if (next != &thread) resume(thread, *next, false);
  go_on_with(thread);
}

void BlockRunner::leave(bool for_good) {
  change(*self->fiber, host_, for_good);
  std::abort();
}

void BlockRunner::fiber_entry() {
  arrived_first();
  runner->run_threads();
}

void BlockRunner::run_threads() {
  for (;;) {
    Thread& thread = *self;
    acquire(&launch_start_);
    call_->run();
    release(&launch_end_);
    end(thread);
    Thread* next = pick();
    if (next == nullptr && live_ > 0) report_deadlock();
    if (!kThreadSanitizer && next != nullptr && next->fiber == nullptr) {
      next->fiber = thread.fiber;
      go_on_with(*next);
      continue;
    }
    if (!kThreadSanitizer) free_fibers_.push_back(static_cast<int>(thread.fiber - fibers_.data()));
    if (next == nullptr) leave(true);
    resume(thread, *next, true);
  }
}

void BlockRunner::end(Thread& thread) {
  thread.state = Thread::ended;
  --live_;
  Warp& warp = warps_[thread.warp];
  warp.live &= ~(1U << thread.lane);
  if (arrived_ > 0) {  // works on a GPU or hangs; the programming guide leaves it undefined
    fail(cudaErrorLaunchFailure, "the thread ended while others wait in __syncthreads at " + to_string(barrier_place_),
         barrier_place_);
  }
  const unsigned first = thread.linear - thread.lane;
  for (unsigned waiting = warp.waiting; waiting != 0; waiting &= warp.waiting & (waiting - 1)) {
    complete(warp, first, threads_[first + static_cast<unsigned>(std::countr_zero(waiting))].request->mask);
  }
}

// ---- waiting

int BlockRunner::barrier(int vote, Place place) {
  Thread& thread = *self;
  if (arrived_ > 0 && (place.line != barrier_place_.line || std::strcmp(place.file, barrier_place_.file) != 0)) {
    fail(cudaErrorLaunchFailure,
         "divergent barrier: other threads wait in __syncthreads at " + to_string(barrier_place_), place);
  }
  if (live_ != count_) fail(cudaErrorLaunchFailure, "__syncthreads after threads of the block have ended", place);
  barrier_place_ = thread.place = place;
  thread.state = Thread::waits_for_block;
  votes_ += vote;
  char* sync = &sync_->block[phase_ & 1];
  release(sync);
  if (++arrived_ == count_) {
    last_votes_ = votes_;
    arrived_ = votes_ = 0;
    ++phase_;
    const int warps = (count_ + warpSize - 1) / warpSize;
    for (int w = 0; w < warps; ++w) warps_[w].ready = warps_[w].live;
    ready_warps_ = warps == kMaxWarps ? ~0U : (1U << warps) - 1;
  }
  suspend(thread);
  thread.state = Thread::runs;
  acquire(sync);
  return last_votes_;
}

void BlockRunner::collective(const WarpRequest& request, Place place) {
  Thread& thread = *self;
  if ((request.mask >> thread.lane & 1) == 0) {
    fail(cudaErrorLaunchFailure, "the calling lane is not in the mask of its warp's operation", place);
  }
  Warp& warp = warps_[thread.warp];
  thread.place = place;
  thread.request = &request;
  thread.state = Thread::waits_for_warp;
  warp.waiting |= 1U << thread.lane;
  char* sync = &sync_->warp[thread.warp][warp.phase & 1];
  release(sync);
  complete(warp, thread.linear - thread.lane, request.mask);
  suspend(thread);
  thread.state = Thread::runs;
  acquire(sync);
}

/// If all live lanes of the mask wait for the same: does it and lets them run.
bool BlockRunner::complete(Warp& warp, unsigned first_thread, unsigned mask) {
  const unsigned lanes = mask & warp.live;
  if ((warp.waiting & lanes) != lanes || lanes == 0) return false;
  const WarpRequest* requests[warpSize];
  const WarpRequest& one = *threads_[first_thread + static_cast<unsigned>(std::countr_zero(lanes))].request;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    const Thread& thread = threads_[first_thread + lane];
    requests[lane] = thread.request;
    if (thread.request->mask != mask) return false;
    if (thread.request->operation != one.operation || thread.request->bytes != one.bytes) {
      fail(cudaErrorLaunchFailure, "lanes of one warp wait for different operations", thread.place);
    }
  }
  if (one.operation >= WarpOperation::mma && lanes != ~0U) {
    fail(cudaErrorLaunchFailure, "mma and ldmatrix need all 32 lanes of the warp", self->place);
  }
  perform(requests, lanes);
  warp.waiting &= ~lanes;
  warp.ready |= lanes;
  ++warp.phase;
  ready_warps_ |= 1U << (first_thread / warpSize);
  return true;
}

void BlockRunner::report_deadlock() {
  constexpr int kShown = 4;
  std::string text = "deadlock:";
  int shown = 0;
  Place place = self->place;
  for (int i = 0; i < count_ && shown < kShown; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == Thread::ended) continue;
    if (shown++ == 0) place = thread.place;
    text += " thread " + to_string("", thread.index).substr(1) +
            (thread.state == Thread::waits_for_block ? " waits in __syncthreads at " : " waits for its warp at ") +
            to_string(thread.place) + ";";
  }
  text.pop_back();
  fail(cudaErrorLaunchFailure, text, place);
}

void BlockRunner::fail(cudaError_t error, const std::string& what, Place place) {
  failure_ = {error, (place.line > 0 ? to_string(place) + ": " : "") + what + "; " + to_string("block", blockIdx) +
                         " " + to_string("thread", self->index)};
  leave(false);
}

// ---- shared memory

void* BlockRunner::static_shared(const void* key, size_t bytes, size_t align) {
  for (const SharedArray& array : shared_arrays_) {
    if (array.key == key && array.bytes == bytes) return array.memory;
  }
  align = std::max<size_t>(align, 16);
  static_bytes_ = (static_bytes_ + align - 1) / align * align + bytes;
  if (static_bytes_ > kStaticShared) {
    fail(cudaErrorLaunchFailure, "more than 48 KiB of static shared memory", {"", 0});
  }
  if (static_bytes_ + dynamic_bytes_ > kMaxShared) {
    fail(cudaErrorLaunchFailure, "more than 227 KiB of shared memory, static and dynamic", {"", 0});
  }
  const size_t offset = (static_extent_ + align - 1) / align * align;
  if (offset + bytes + kGap > kStaticArea) {
    fail(cudaErrorLaunchFailure, "too many static shared arrays for the emulation", {"", 0});
  }
  static_extent_ = offset + bytes + kGap;
  char* memory = area_ + offset;
  unpoison(memory, bytes);
  fill_with_nan(memory, bytes);
  shared_arrays_.push_back({key, memory, bytes});
  return memory;
}

bool BlockRunner::is_shared(const void* address) const {
  return address >= area_ && address < area_ + kStaticArea + dynamic_bytes_;
}

// ---- what headers call

void fail_thread(cudaError_t error, const char* what, Place place) {
  running(place).fail(error, what, place);
}
int block_barrier(int vote, Place place) {
  return running(place).barrier(vote, place);
}
void warp_collective(const WarpRequest& request, Place place) {
  running(place).collective(request, place);
}
unsigned live_lanes() {
  return running({"__activemask", 0}).live_lanes();
}
void* block_shared(const void* key, size_t bytes, size_t align) {
  return running({"KEEL_SHARED", 0}).static_shared(key, bytes, align);
}
void* block_dynamic_shared() {
  return running({"dynamic_shared", 0}).dynamic_shared();
}
bool is_shared(const void* address) {
  return runner->is_shared(address);
}
void memory_fence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  acquire(&fences);
  release(&fences);
}
#if defined(KEEL_EMULATION_TSAN)
void see_fences() {
  acquire(&fences);
}
#endif

}  // namespace cuda_on_cpu
