#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <optional>

#include "keel/base/error.h"
#include "support/child.h"

namespace keel::testing {

/// For a child process: from now on it gets no new thread. False where that cannot be arranged.
inline bool forbid_threads() {
  constexpr uid_t kNobody = 65534;  // no limit holds for root
  if (::geteuid() == 0 && ::setuid(kNobody) != 0) return false;
  const rlimit none{0, 0};
  return ::setrlimit(RLIMIT_NPROC, &none) == 0;
}

/// The exit code of the Error that `body` throws in a child process without new threads, 0 if none; nothing where they
/// cannot be forbidden.
template <class Body>
std::optional<int> exit_code_without_threads(Body body) {
  constexpr int kNotForbidden = 77;
  const auto result = run_in_child([&] {
    if (!forbid_threads()) return kNotForbidden;
    try {
      body();
    } catch (const Error& error) {
      return exit_code(error.kind());
    }
    return 0;
  });
  return result.code == kNotForbidden ? std::nullopt : std::optional(result.code);
}

}  // namespace keel::testing
