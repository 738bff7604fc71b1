#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "keel/base/export.h"
#include "keel/kernels/common/context.h"

namespace keel {

struct CudaRecording;

/// Work that is enqueued again and again, operation by operation or, on a GPU, recorded once as a CUDA graph and from then on
/// enqueued in one go: with the same bits, in less of the host's time. The context outlives it.
/// With KEEL_CUDA_GRAPH=0 in the environment nothing is recorded (1, the default: what can be).
class KEEL_API Recording {
 public:
  /// What the work's sizes follow from.
  using Key = std::array<int64_t, 2>;

  /// Whether anything is to be recorded. Error(usage) for a KEEL_CUDA_GRAPH that is neither 0 nor 1.
  static bool is_wanted();

  explicit Recording(Context& ctx);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Enqueues what work() enqueues: by calling it, or as it was when it was called with this key, which has come twice in a
  /// row then, or more often if recordings were of little use before. For a key it always enqueues the same operations on the
  /// same addresses; what changes from time to time they read from memory of the device. It neither waits nor copies from
  /// memory that is not pinned. False if work() says false, which gave up half-way.
  bool run(const Key& key, const std::function<bool()>& work);

  /// True if the last run() enqueued what was recorded.
  bool is_replayed() const { return is_replayed_; }
  /// Why the work cannot be recorded and is not any more; "" if it can, as far as is known.
  const std::string& problem() const { return problem_; }

 private:
  bool record(const Key& key, const std::function<bool()>& work);
  void replay();

  struct Drop {
    void operator()(CudaRecording* recording) const;
  };
  Context& ctx_;
  bool is_off_;
  bool is_replayed_ = false;
  std::string problem_;
  std::unique_ptr<CudaRecording, Drop> recording_;
  Key key_{};             ///< of the recording
  int64_t replaced_ = 0;  ///< replaced_memories when it was made
  Key last_key_{};
  int64_t in_a_row_ = 0, wanted_ = 2;
};

}  // namespace keel
