#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "keel/base/export.h"

namespace keel {

/// Seconds of a clock that never jumps, since construction or the last restart().
class Stopwatch {
 public:
  Stopwatch() : start_(Clock::now()) {}
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// seconds(), and starts again from 0.
  double restart() {
    const Clock::time_point now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return elapsed;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
};

/// ISO 8601 in UTC, whole seconds: "2026-01-02T03:04:05Z".
KEEL_API std::string utc_time(std::chrono::system_clock::time_point time = std::chrono::system_clock::now());
/// Seconds since 1970, UTC.
KEEL_API double unix_time();

}  // namespace keel
