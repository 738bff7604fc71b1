#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/export.h"
#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_cost.h"

namespace keel {

/// Of an operation on rows: adding up the sums of chunks costs next to nothing.
inline OperationCost cost_of_rows(RowSums sums, OperationCost cost) {
  return sums == RowSums::add_up ? OperationCost{} : cost;
}

/// Where time goes, operation by operation. Attach it to a context (Context::set_profile), run, read totals().
/// An operation that runs others keeps only its own time, so that the seconds add up to no more than what passed.
/// On a GPU operations only enqueue, and so does this: notes of the time before and after what each of them enqueues
/// (cuda_device.h), which totals() waits for. What the GPU waits for the host is then part of what it waits for.
class KEEL_API OperationProfile {
 public:
  struct Totals {
    int64_t calls = 0;
    double seconds = 0;  ///< of operations that threads run side by side: an even share of the sum of theirs
    double flops = 0, bytes = 0;
  };

  void enter(const char* name, OperationCost cost);
  void leave();
  /// Of a GPU, the times of operations that are over.
  std::map<std::string, Totals> totals();
  /// The sum of all operations'.
  double seconds();
  void clear();

  /// Where the context of a thread, one of `threads`, reports (Context::worker).
  OperationProfile& of_thread(size_t thread, size_t threads);

  /// Times come from this GPU from now on, from the thread's clock if null; those so far are waited for. For
  /// Context::set_profile.
  void take_times_of(CudaQueue* gpu);
  /// In the memory of that GPU: what an operation adds to there counts as part of its cost. For costs that only the device
  /// knows, of kCostsOnDevice operations at most.
  OperationCost* cost_on_device(const char* name);

 private:
  struct Open {
    Totals* totals;
    double begun, within;  ///< seconds of the clock; of those, what operations inside took
    CudaQueue* gpu;        ///< null: of the clock
    int64_t mark;          ///< of the GPU
  };
  /// An operation on a GPU that is over, between two marks; null: no operation was around it.
  struct Enqueued {
    Totals *totals, *around;
    int64_t begin, end;
  };
  void leave_enqueued(const Open& done);
  void settle();

  Stopwatch clock_;
  std::map<std::string, Totals> totals_;
  std::vector<Open> open_;
  std::vector<OperationProfile> threads_;
  CudaQueue* gpu_ = nullptr;
  std::vector<Enqueued> enqueued_;
  std::vector<Totals*> counted_;  ///< those with a cost_on_device, in the order of their places there
};

/// Marks the time of an operation, where its context has a profile.
class OperationScope {
 public:
  OperationScope(Context& ctx, const char* name, OperationCost cost) : profile_(ctx.profile()) {
    if (profile_ != nullptr) profile_->enter(name, cost);
  }
  ~OperationScope() {
    if (profile_ != nullptr) profile_->leave();
  }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  OperationProfile* profile_;
};

/// Bytes of matrices of the same size, each read or written once.
template <class T, int Rank, class Memory>
double bytes_of(const View<T, Rank, Memory>& x, double times = 1) {
  return times * static_cast<double>(x.size()) * sizeof(T);
}
template <class Access, int Rank>
double bytes_of(const AnyView<Access, Rank>& x, double times = 1) {
  return times * static_cast<double>(x.size() * element_bytes(x.type()));
}

}  // namespace keel
