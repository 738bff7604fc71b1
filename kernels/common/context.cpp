#include "keel/kernels/common/context.h"

#include <algorithm>
#include <string>

#include "keel/base/error.h"
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/recording.h"
#include "keel/kernels/matmul/matmul_cache.h"

namespace keel {

Context::Context(Worker, Isa isa) : threads_(1), isa_(isa), matmul_cache_(std::make_unique<MatmulCache>()) {}

Context::Context(int threads, Isa isa) : Context(Worker{}, isa) {
  if (threads < 1) throw Error(ErrorKind::usage, "a context needs at least one thread");
  if (!isa_available(isa))
    throw Error(ErrorKind::device, "this processor does not run that instruction set", isa_name(isa));
  threads_ = threads;
  team_ = std::make_unique<ThreadTeam>(threads);
  for (int t = 0; t < threads; ++t) workers_.emplace_back(new Context(Worker{}, isa));
}

Context::Context(const DeviceChoice& choice, int threads) : Context(threads) {
  if (choice.device == Device::cpu) return;
  (void)Recording::is_wanted();  // refused here, before anything is computed
  open_cuda_backend(choice.backend);
  queue_.reset(cuda::open_queue(choice.index));
  is_emulated_ = choice.backend == CudaBackend::emulated;
  workers_.clear();  // contexts of the CPU: nothing is to fall back on them
}

Context::~Context() = default;

void Context::CloseQueue::operator()(CudaQueue* queue) const {
  cuda::close_queue(queue);
}

std::string Context::name() {
  return queue_ == nullptr ? "cpu" : cuda::device_info(*queue_).name;
}

void Context::synchronize() {
  if (queue_ != nullptr) cuda::synchronize(*queue_);
}

void Context::set_profile(OperationProfile* profile) {
  if (queue_ != nullptr) {
    if (profile_ != nullptr) profile_->take_times_of(nullptr);
    if (profile != nullptr) profile->take_times_of(queue_.get());
  }
  profile_ = profile;
  for (size_t t = 0; t < workers_.size(); ++t) {
    workers_[t]->profile_ = profile == nullptr ? nullptr : &profile->of_thread(t, workers_.size());
  }
}

void* Context::scratch(int64_t bytes) {
  constexpr int64_t kLine = 64;
  if (queue_ != nullptr) {
    scratch_bytes_ = std::max(scratch_bytes_, bytes);
    return cuda::scratch(*queue_, bytes);
  }
  if (scratch_bytes_ < bytes) {
    scratch_.reset();
    scratch_bytes_ = 0;
    const int64_t rounded = (bytes + kLine - 1) / kLine * kLine;
    scratch_.reset(std::aligned_alloc(kLine, static_cast<size_t>(rounded)));
    if (!scratch_) throw Error(ErrorKind::memory, "no memory for " + std::to_string(bytes) + " bytes of scratch");
    scratch_bytes_ = rounded;
  }
  return scratch_.get();
}

}  // namespace keel
