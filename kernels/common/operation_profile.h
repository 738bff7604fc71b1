#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/export.h"
#include "keel/base/view.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// The least that an operation has to do: arithmetic (a fused multiply-add counts two; an exponential some 20) and
/// memory that it reads or writes once each.
struct OperationCost {
  double flops = 0;
  double bytes = 0;
};

/// Where time goes, operation by operation. Attach it to a context (Context::set_profile), run, read totals().
/// An operation that runs others keeps only its own time, so that the seconds add up to no more than what passed.
class KEEL_API OperationProfile {
 public:
  struct Totals {
    int64_t calls = 0;
    double seconds = 0, flops = 0, bytes = 0;
  };

  void enter(const char* name, OperationCost cost);
  void leave();
  const std::map<std::string, Totals>& totals() const { return totals_; }
  double seconds() const;
  void clear() { totals_.clear(); }

 private:
  struct Open {
    Totals* totals;
    double begun, within;  ///< seconds of the clock; of those, what operations inside took
  };
  Stopwatch clock_;
  std::map<std::string, Totals> totals_;
  std::vector<Open> open_;
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

}  // namespace keel
