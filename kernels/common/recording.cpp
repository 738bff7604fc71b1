#include "keel/kernels/common/recording.h"

#include "keel/base/error.h"
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/common/environment.h"

namespace keel {

bool Recording::is_wanted() {
  return environment_switch("KEEL_CUDA_GRAPH", true);
}

void Recording::Drop::operator()(CudaRecording* recording) const {
  cuda::drop_recording(recording);
}

Recording::Recording(Context& ctx) : ctx_(ctx), is_off_(ctx.device() == Device::cpu || !is_wanted()) {}

Recording::~Recording() = default;

bool Recording::run(const Key& key, const std::function<bool()>& work) {
  is_replayed_ = false;
  if (is_off_ || ctx_.profile() != nullptr || !problem_.empty()) return work();
  in_a_row_ = key == last_key_ ? in_a_row_ + 1 : 1;
  last_key_ = key;
  if (recording_ && replaced_ != cuda::replaced_memories()) recording_.reset();
  if (recording_ && key == key_) {
    replay();
    return true;
  }
  if (in_a_row_ < wanted_) return work();
  if (recording_) wanted_ *= 2;
  return record(key, work);
}

void Recording::replay() {
  cuda::replay(ctx_.queue(), *recording_);
  is_replayed_ = true;
}

bool Recording::record(const Key& key, const std::function<bool()>& work) {
  recording_.reset();
  try {
    cuda::begin_recording(ctx_.queue());
    if (!work()) {
      cuda::cancel_recording(ctx_.queue());
      return false;
    }
    recording_.reset(cuda::end_recording(ctx_.queue()));
  } catch (const Error& error) {
    cuda::cancel_recording(ctx_.queue());
    problem_ = error.what();
    return work();
  } catch (...) {
    cuda::cancel_recording(ctx_.queue());
    throw;
  }
  key_ = key;
  replaced_ = cuda::replaced_memories();
  replay();
  return true;
}

}  // namespace keel
