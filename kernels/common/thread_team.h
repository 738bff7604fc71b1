#pragma once

#include <cstdint>
#include <memory>

#include "keel/base/export.h"

namespace keel {

/// Threads that are started once and share the parts of one piece of work after another. A thread begins with its own
/// share of the parts, the same ones for the same numbers of parts and threads, and then takes over what others have not
/// begun; nothing waits for a thread that holds no part. Who has nothing to do waits in a loop for some microseconds,
/// then sleeps. Used by one thread at a time.
class KEEL_API ThreadTeam {
 public:
  /// `threads` >= 1 with the caller. Error(device) if the system does not give that many.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const;

  using Part = void (*)(void* argument, int64_t part, int thread);
  /// body(argument, part, thread) for every part in [0, parts), by the first `threads` <= size() threads; the caller is
  /// thread 0. Returns when all parts are done. Throws the first exception of a part, after those that were begun; parts
  /// must not call run().
  void run(int64_t parts, int threads, Part body, void* argument);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The threads that an operation may use. team null: the calling one.
struct Threads {
  ThreadTeam* team = nullptr;
  int count = 1;
};

}  // namespace keel
