#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "keel/base/process.h"
#include "keel/base/signals.h"

namespace keel {

/// One thread produces items, several work on them, the caller's thread takes the results in the order of production:
/// what comes out does not depend on the number of workers. At most `max_bytes` of items are under way, or one item.
///
/// An exception of the producer or a worker comes out of run() when its turn has come, after all results before it.
/// Then, after an exception of the consumer, and after a signal (Stopped), everything is stopped and joined before
/// run() ends. Error(memory) if the system does not give the threads.
template <class Item, class Result>
class OrderedPipeline {
 public:
  /// The next item and its size in bytes; nothing at the end. Is to return or throw soon once `cancelled()` is set.
  using Produce = std::function<std::optional<std::pair<Item, int64_t>>()>;
  using Work = std::function<Result(Item)>;
  /// Makes the function of one worker, which is used by one thread.
  using MakeWork = std::function<Work()>;
  using Consume = std::function<void(Result)>;

  OrderedPipeline(int workers, int64_t max_bytes) : workers_(workers), max_bytes_(max_bytes) {}

  const std::atomic<bool>& cancelled() const { return cancelled_; }

  void run(const Produce& produce, const MakeWork& make_work, const Consume& consume) {
    const Cancel cancel_at_end{*this};
    try {
      threads_.emplace_back([this, &produce] { run_producer(produce); });
      for (int i = 0; i < workers_; ++i) {
        threads_.emplace_back([this, &make_work] { run_worker(make_work); });
      }
    } catch (const std::system_error& refused) {
      throw thread_error(workers_ + 1, refused);
    }
    while (std::optional<Result> result = take_first()) consume(std::move(*result));
  }

 private:
  struct Slot {
    std::optional<Item> item;
    std::optional<Result> result;
    std::exception_ptr error;
    int64_t bytes = 0;
    bool done() const { return result.has_value() || error != nullptr; }
  };

  struct Cancel {
    OrderedPipeline& pipeline;
    ~Cancel() {
      {
        const std::lock_guard lock(pipeline.mutex_);
        pipeline.cancelled_ = true;
      }
      pipeline.changed_.notify_all();
      for (std::thread& thread : pipeline.threads_) thread.join();
      pipeline.threads_.clear();
    }
  };

  bool has_room(int64_t bytes) const {
    const bool slots_free = slots_.size() < static_cast<size_t>(4 * workers_ + 4);
    return slots_.empty() || (slots_free && bytes_under_way_ + bytes <= max_bytes_);
  }

  void run_producer(const Produce& produce) {
    Slot last;
    try {
      while (std::optional<std::pair<Item, int64_t>> produced = produce()) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return cancelled_ || has_room(produced->second); });
        if (cancelled_) return;
        Slot& slot = slots_.emplace_back();
        slot.item = std::move(produced->first);
        slot.bytes = produced->second;
        bytes_under_way_ += slot.bytes;
        lock.unlock();
        changed_.notify_all();
      }
    } catch (...) {
      last.error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (last.error != nullptr) slots_.push_back(std::move(last));
    produced_all_ = true;
    changed_.notify_all();
  }

  void run_worker(const MakeWork& make_work) {
    Work work;
    for (;;) {
      std::unique_lock lock(mutex_);
      Slot* slot = nullptr;
      changed_.wait(lock, [&] { return cancelled_ || (slot = first_waiting()) != nullptr || produced_all_; });
      if (cancelled_ || slot == nullptr) return;
      Item item = std::move(*slot->item);
      slot->item.reset();
      lock.unlock();
      std::optional<Result> result;
      std::exception_ptr error;
      try {
        if (!work) work = make_work();
        result = work(std::move(item));
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      slot->result = std::move(result);
      slot->error = error;
      lock.unlock();
      changed_.notify_all();
    }
  }

  // A deque keeps its elements in place while others come and go at its ends, so the pointer stays good.
  Slot* first_waiting() {
    const auto found =
        std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.item.has_value(); });
    return found == slots_.end() ? nullptr : &*found;
  }

  std::optional<Result> take_first() {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return slots_.empty() ? produced_all_ : slots_.front().done(); };
    while (!changed_.wait_for(lock, std::chrono::milliseconds(100), ready)) throw_if_stopped();
    throw_if_stopped();
    if (slots_.empty()) return std::nullopt;
    Slot slot = std::move(slots_.front());
    slots_.pop_front();
    bytes_under_way_ -= slot.bytes;
    lock.unlock();
    changed_.notify_all();
    if (slot.error != nullptr) std::rethrow_exception(slot.error);
    return std::move(slot.result);
  }

  const int workers_;
  const int64_t max_bytes_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Slot> slots_;
  int64_t bytes_under_way_ = 0;
  bool produced_all_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace keel
