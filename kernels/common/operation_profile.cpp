#include "keel/kernels/common/operation_profile.h"

namespace keel {

void OperationProfile::enter(const char* name, OperationCost cost) {
  Totals& totals = totals_[name];
  ++totals.calls;
  totals.flops += cost.flops;
  totals.bytes += cost.bytes;
  open_.push_back({&totals, clock_.seconds(), 0});
}

void OperationProfile::leave() {
  const Open done = open_.back();
  open_.pop_back();
  const double passed = clock_.seconds() - done.begun;
  done.totals->seconds += passed - done.within;
  if (!open_.empty()) open_.back().within += passed;
}

double OperationProfile::seconds() const {
  double sum = 0;
  for (const auto& [name, totals] : totals_) sum += totals.seconds;
  return sum;
}

}  // namespace keel
