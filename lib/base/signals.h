#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "keel/base/export.h"

namespace keel {

namespace detail {
KEEL_API extern std::atomic<int> stop_signal_value;
KEEL_API extern std::atomic<int> stop_count_value;
}  // namespace detail

inline constexpr int kSameRequestMs = 300;

/// From now on SIGINT, SIGTERM, SIGUSR1 and, unless it is ignored (nohup), SIGHUP only ask to stop; SIGPIPE and SIGXFSZ
/// are ignored, so that writes fail with an error. Signals within kSameRequestMs of a request are the same request. The
/// third one ends the process at once (files under their final names are complete even then). SIGBUS from a mapped file that became shorter, or whose disk failed, ends the process
/// with one line that begins with "<tool>: error:" and code 4; any other SIGBUS is a bug and stays as it was (all of
/// them in builds with AddressSanitizer). Called by the thread that takes the signals: it gets a stack for handlers;
/// threads of a ThreadTeam block them.
KEEL_API void install_signal_handlers(std::string_view tool = "keel");

/// True once a stop was asked for. One relaxed load: fit for inner loops.
inline bool stop_requested() noexcept {
  return detail::stop_signal_value.load(std::memory_order_relaxed) != 0;
}
/// The first signal that asked, 0 if none.
inline int stop_signal() noexcept {
  return detail::stop_signal_value.load(std::memory_order_relaxed);
}
/// True from the second request on: stop as fast as possible, without saving first.
inline bool stop_is_urgent() noexcept {
  return detail::stop_count_value.load(std::memory_order_relaxed) >= 2;
}

/// What a signal does, for programs and tests.
KEEL_API void request_stop(int signal) noexcept;
KEEL_API void clear_stop() noexcept;

/// "SIGINT"; "signal 9" for one without a name here.
KEEL_API std::string signal_name(int signal);
/// 130 SIGINT, 143 SIGTERM, 138 SIGUSR1, 129 SIGHUP.
constexpr int exit_code_of_signal(int signal) noexcept {
  return 128 + signal;
}

/// Thrown where work is given up for a signal; run_tool turns it into the exit code. `signal` is 0 where
/// there was another reason, such as the `interrupted` of a model.
struct KEEL_API Stopped {
  int signal;
};
/// Throws Stopped if a stop was asked for.
KEEL_API void throw_if_stopped();

}  // namespace keel
