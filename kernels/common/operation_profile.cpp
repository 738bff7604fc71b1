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

std::map<std::string, OperationProfile::Totals> OperationProfile::totals() const {
  std::map<std::string, Totals> sums = totals_;
  for (const OperationProfile& thread : threads_) {
    for (const auto& [name, own] : thread.totals_) {
      Totals& sum = sums[name];
      sum.calls += own.calls;
      sum.seconds += own.seconds / static_cast<double>(threads_.size());
      sum.flops += own.flops;
      sum.bytes += own.bytes;
    }
  }
  return sums;
}

double OperationProfile::seconds() const {
  double sum = 0;
  for (const auto& [name, totals] : totals()) sum += totals.seconds;
  return sum;
}

void OperationProfile::clear() {
  totals_.clear();
  for (OperationProfile& thread : threads_) thread.clear();
}

OperationProfile& OperationProfile::of_thread(size_t thread, size_t threads) {
  if (threads_.size() < threads) threads_.resize(threads);
  return threads_[thread];
}

}  // namespace keel
