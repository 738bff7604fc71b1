#include "keel/kernels/common/operation_profile.h"

#include <algorithm>
#include <array>
#include <utility>

#include "keel/base/error.h"
#include "keel/kernels/common/cuda_device.h"

namespace keel {

void OperationProfile::enter(const char* name, OperationCost cost) {
  Totals& totals = totals_[name];
  ++totals.calls;
  totals.flops += cost.flops;
  totals.bytes += cost.bytes;
  open_.push_back({.totals = &totals,
                   .begun = clock_.seconds(),
                   .within = 0,
                   .gpu = gpu_,
                   .mark = gpu_ == nullptr ? 0 : cuda::mark_time(*gpu_)});
}

void OperationProfile::leave() {
  const Open done = open_.back();
  open_.pop_back();
  if (done.gpu != nullptr) return leave_enqueued(done);
  const double passed = clock_.seconds() - done.begun;
  done.totals->seconds += passed - done.within;
  if (!open_.empty()) open_.back().within += passed;
}

void OperationProfile::leave_enqueued(const Open& done) {
  Totals* const around = open_.empty() ? nullptr : open_.back().totals;
  try {
    enqueued_.push_back({done.totals, around, done.mark, cuda::mark_time(*done.gpu)});
  } catch (const Error&) {
    // A GPU that is broken: whoever waits for it is told, and scopes end without exceptions.
  }
}

void OperationProfile::settle() {
  if (gpu_ == nullptr) return;
  std::array<OperationCost, kCostsOnDevice> costs{};
  if (!counted_.empty()) {
    OperationCost* const on_device = cuda::costs_on_device(*gpu_);
    cuda::copy_to_host(*gpu_, on_device, costs.data(), sizeof costs);
    cuda::zero(*gpu_, on_device, sizeof costs);
  }
  cuda::synchronize(*gpu_);
  for (size_t i = 0; i < counted_.size(); ++i) {
    counted_[i]->flops += costs[i].flops;
    counted_[i]->bytes += costs[i].bytes;
  }
  for (const Enqueued& done : std::exchange(enqueued_, {})) {
    const double seconds = cuda::seconds_between_times(*gpu_, done.begin, done.end);
    done.totals->seconds += seconds;
    if (done.around != nullptr) done.around->seconds -= seconds;
  }
}

void OperationProfile::take_times_of(CudaQueue* gpu) {
  settle();
  counted_.clear();
  gpu_ = gpu;
}

OperationCost* OperationProfile::cost_on_device(const char* name) {
  OperationCost* const places = cuda::costs_on_device(*gpu_);
  if (counted_.empty()) cuda::zero(*gpu_, places, kCostsOnDevice * sizeof(OperationCost));
  Totals* const totals = &totals_[name];
  const auto found = std::find(counted_.begin(), counted_.end(), totals);
  const auto place = found - counted_.begin();
  if (found == counted_.end()) {
    if (place == kCostsOnDevice) throw Error(ErrorKind::internal, "too many costs that only the device knows", name);
    counted_.push_back(totals);
  }
  return places + place;
}

std::map<std::string, OperationProfile::Totals> OperationProfile::totals() {
  settle();
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

double OperationProfile::seconds() {
  double sum = 0;
  for (const auto& [name, totals] : totals()) sum += totals.seconds;
  return sum;
}

void OperationProfile::clear() {
  settle();
  counted_.clear();
  totals_.clear();
  for (OperationProfile& thread : threads_) thread.clear();
}

OperationProfile& OperationProfile::of_thread(size_t thread, size_t threads) {
  if (threads_.size() < threads) threads_.resize(threads);
  return threads_[thread];
}

}  // namespace keel
