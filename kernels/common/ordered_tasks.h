#pragma once

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

/// Tasks that depend on each other, without a meeting of all threads between them: tasks 0 .. count - 1 are begun in this
/// order, each on one thread, and may wait for what earlier ones report. Where all that a task waits for was begun well
/// before it, threads wait at the end only. One run at a time.
class OrderedTasks {
 public:
  /// body(task, thread) for every task; counters [0, counters) begin at 0. The first exception of a task ends the run: no
  /// task is begun after it, and it is thrown here.
  template <class Body>
  void run(Threads threads, int64_t counters, int64_t count, Body body) {
    prepare(counters);
    for_parts(threads, threads.count, [&](int64_t, int thread) {
      while (!failed_.load(std::memory_order_relaxed)) {
        const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
        if (task >= count) return;
        try {
          body(task, thread);
        } catch (...) {
          fail(std::current_exception());
        }
      }
    });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  /// From within a task: what it did until now is done, for those who wait for this counter.
  void report(int64_t counter) { counters_[counter].times.fetch_add(1, std::memory_order_release); }

  /// From within a task: true once `counter` was reported this often, by tasks before the waiting one. False if the run
  /// has failed: the task has to return.
  [[nodiscard]] bool wait(int64_t counter, int64_t times) const {
    constexpr int kSpins = 1000;  // some tens of microseconds
    for (int64_t i = 0; counters_[counter].times.load(std::memory_order_acquire) < times; ++i) {
      if (failed_.load(std::memory_order_relaxed)) return false;
      if (i < kSpins) {
        pause_briefly();
      } else {
        std::this_thread::yield();
      }
    }
    return true;
  }

 private:
  struct alignas(64) Counter {
    std::atomic<int64_t> times{0};
  };

  void prepare(int64_t counters) {
    if (std::ssize(counters_) < counters) counters_ = std::vector<Counter>(counters);
    for (Counter& counter : counters_) counter.times.store(0, std::memory_order_relaxed);
    next_ = 0;
    failed_ = false;
  }
  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::move(failure);
    failed_ = true;
  }

  std::vector<Counter> counters_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace keel
