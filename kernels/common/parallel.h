#pragma once

#include <cstdint>

#include "keel/kernels/common/thread_team.h"

namespace keel {

/// An operation on fewer elements than this runs on the calling thread: waking the others would take longer.
inline constexpr int64_t kParallelElements = 1 << 14;

/// body(part, thread) for every part in [0, parts).
template <class Body>
[[gnu::always_inline]] inline void for_parts(Threads threads, int64_t parts, Body body) {
  if (threads.count == 1 || parts <= 1) {
    for (int64_t part = 0; part < parts; ++part) body(part, 0);
    return;
  }
  threads.team->run(
      parts, threads.count,
      [](void* argument, int64_t part, int thread) { (*static_cast<Body*>(argument))(part, thread); }, &body);
}

/// body(begin, end) for ranges that cover [0, n); `elements`: what all of them work on.
template <class Body>
[[gnu::always_inline]] inline void for_ranges(Threads threads, int64_t n, int64_t elements, Body body) {
  int64_t parts = elements / kParallelElements;
  const int64_t most = 4 * threads.count;
  if (threads.count == 1) parts = 1;
  parts = parts < 1 ? 1 : (parts < most ? parts : most);
  parts = parts < n ? parts : n;
  for_parts(threads, parts, [&](int64_t part, int) { body(n * part / parts, n * (part + 1) / parts); });
}

}  // namespace keel
