#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/pause.h"

namespace keel {

/// Chains of tasks, without a meeting of all threads between tasks: task i of a chain begins once task i - 1 of it is done
/// and the caller says that it may. Threads take the chain that is furthest behind: all advance at the same pace, though
/// some threads may be slower than others. One run at a time.
class TaskChains {
 public:
  /// body(chain, task, thread) for tasks 0 .. length - 1 of each chain. may_begin(chain, task), asked by any thread, goes by
  /// done() of the chains; some task may always begin, or the run never ends. What a task wrote is seen by the tasks that
  /// begin after done() counts it. The first exception of a task ends the run: no task is begun after it, and it is thrown
  /// here.
  template <class MayBegin, class Body>
  void run(Threads threads, int64_t chains, int64_t length, MayBegin may_begin, Body body) {
    prepare(chains, threads.count);
    for_parts(threads, threads.count, [&](int64_t, int thread) {
      constexpr int kSpins = 1000;  // some tens of microseconds
      for (int spins = 0; !failed_.load(std::memory_order_relaxed);) {
        const int64_t chain = take(last_[thread].chain, length, may_begin);
        if (chain == kNone) {
          if (all_done(length)) return;
          if (++spins < kSpins) {
            pause_briefly();
          } else {
            std::this_thread::yield();
          }
          continue;
        }
        spins = 0;
        last_[thread].chain = chain;
        try {
          body(chain, done(chain), thread);
          chains_[chain].done.fetch_add(1, std::memory_order_release);
        } catch (...) {
          fail(std::current_exception());
        }
        chains_[chain].is_taken.store(false, std::memory_order_release);
      }
    });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  /// Tasks of a chain that are done.
  int64_t done(int64_t chain) const { return chains_[chain].done.load(std::memory_order_acquire); }

 private:
  static constexpr int64_t kNone = -1;
  struct alignas(64) Chain {
    std::atomic<int64_t> done{0};
    std::atomic<bool> is_taken{false};
  };
  struct alignas(64) Last {
    int64_t chain = 0;
  };

  void prepare(int64_t chains, int threads) {
    if (std::ssize(chains_) != chains) std::vector<Chain>(chains).swap(chains_);
    for (Chain& chain : chains_) {
      chain.done.store(0, std::memory_order_relaxed);
      chain.is_taken.store(false, std::memory_order_relaxed);
    }
    last_.resize(std::max<size_t>(last_.size(), threads));
    for (int t = 0; t < threads; ++t) last_[t].chain = std::min<int64_t>(t, chains - 1);
    failed_ = false;
  }

  /// The chain, taken, if its next task may begin now.
  template <class MayBegin>
  bool try_to_take(int64_t chain, int64_t length, const MayBegin& may_begin) {
    const auto may = [&] {
      const int64_t task = done(chain);
      return task < length && may_begin(chain, task);
    };
    std::atomic<bool>& is_taken = chains_[chain].is_taken;
    if (is_taken.load(std::memory_order_relaxed) || !may() || is_taken.exchange(true, std::memory_order_acquire)) {
      return false;
    }
    if (may()) return true;  // another thread may have had it in between
    is_taken.store(false, std::memory_order_release);
    return false;
  }
  /// One of those furthest behind, `preferred` before others: its data lie in the thread's cache.
  template <class MayBegin>
  int64_t take(int64_t preferred, int64_t length, const MayBegin& may_begin) {
    int64_t behind = kNone, least = length;
    for (int64_t i = 0; i < std::ssize(chains_); ++i) {
      const int64_t chain = (preferred + i) % std::ssize(chains_), task = done(chain);
      if (task >= least || chains_[chain].is_taken.load(std::memory_order_relaxed) || !may_begin(chain, task)) continue;
      behind = chain;
      least = task;
    }
    return behind != kNone && try_to_take(behind, length, may_begin) ? behind : kNone;
  }
  bool all_done(int64_t length) const {
    return std::all_of(chains_.begin(), chains_.end(),
                       [&](const Chain& chain) { return chain.done.load(std::memory_order_acquire) == length; });
  }
  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::move(failure);
    failed_ = true;
  }

  std::vector<Chain> chains_;
  std::vector<Last> last_;
  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace keel
