#include "keel/base/signals.h"

#include <signal.h>

namespace keel {
namespace detail {
std::atomic<int> stop_signal_value{0};
std::atomic<int> stop_count_value{0};
}  // namespace detail

namespace {

static_assert(std::atomic<int>::is_always_lock_free, "needed inside a signal handler");

void on_stop(int signal) {
  request_stop(signal);
  if (detail::stop_count_value.load(std::memory_order_relaxed) < 3) return;
  (void)::signal(signal, SIG_DFL);
  (void)::raise(signal);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  (void)::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) (void)::sigaction(signal, &action, nullptr);
  for (const int signal : {SIGPIPE, SIGXFSZ}) (void)::signal(signal, SIG_IGN);
}

void request_stop(int signal) noexcept {
  int none = 0;
  (void)detail::stop_signal_value.compare_exchange_strong(none, signal);
  (void)detail::stop_count_value.fetch_add(1);
}

void clear_stop() noexcept {
  detail::stop_signal_value.store(0);
  detail::stop_count_value.store(0);
}

std::string signal_name(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "signal " + std::to_string(signal);
  }
}

void throw_if_stopped() {
  if (stop_requested()) throw Stopped{stop_signal()};
}

}  // namespace keel
