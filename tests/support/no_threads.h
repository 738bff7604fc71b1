#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace keel::testing {

/// For a child process: from now on it gets no new thread. False where that cannot be arranged.
inline bool forbid_threads() {
  constexpr uid_t kNobody = 65534;  // no limit holds for root
  if (::geteuid() == 0 && ::setuid(kNobody) != 0) return false;
  const rlimit none{0, 0};
  return ::setrlimit(RLIMIT_NPROC, &none) == 0;
}

}  // namespace keel::testing
