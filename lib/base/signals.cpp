#include "keel/base/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "keel/base/error.h"

namespace keel {
namespace detail {
std::atomic<int> stop_signal_value{0};
std::atomic<int> stop_count_value{0};
}  // namespace detail

namespace {

static_assert(std::atomic<int>::is_always_lock_free, "needed inside a signal handler");

std::atomic<int64_t> last_stop_ms{0};
static_assert(std::atomic<int64_t>::is_always_lock_free, "needed inside a signal handler");

int64_t now_ms() {
  timespec now{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &now);  // safe in a signal handler
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// Terminals, launchers and wrappers may each pass on what a person asked for once.
void on_stop(int signal) {
  const int64_t now = now_ms();
  if (stop_requested() && now - last_stop_ms.load(std::memory_order_relaxed) < kSameRequestMs) return;
  last_stop_ms.store(now, std::memory_order_relaxed);
  request_stop(signal);
  if (detail::stop_count_value.load(std::memory_order_relaxed) < 3) return;
  (void)::signal(signal, SIG_DFL);
  (void)::raise(signal);
}

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;  // it reports the signal with a trace of its own
#else
constexpr bool kSanitized = false;
#endif

// In static memory: a handler can't allocate.
std::array<char, 256> lost_file_line;
size_t lost_file_line_bytes = 0;

/// Only calls that are safe in a signal handler. Another kind of SIGBUS comes again, without a handler.
void on_lost_file(int signal, siginfo_t* info, void* /*context*/) {
  if (info->si_code != BUS_ADRERR) {
    (void)::signal(signal, SIG_DFL);
    return;
  }
  (void)!::write(STDERR_FILENO, lost_file_line.data(), lost_file_line_bytes);
  ::_exit(kExitIo);
}

void handle_lost_files(std::string_view tool) {
  const std::string line =
      std::string(tool.substr(0, 64)) +
      ": error: a file in use became shorter or could not be read (SIGBUS): restore it and resume\n";
  lost_file_line_bytes = std::min(line.size(), lost_file_line.size());
  std::copy_n(line.begin(), lost_file_line_bytes, lost_file_line.begin());
  struct sigaction action {};
  action.sa_sigaction = on_lost_file;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  (void)::sigemptyset(&action.sa_mask);
  (void)::sigaction(SIGBUS, &action, nullptr);
}

/// What a handler's frame takes, which grows with the registers of a processor, many times over.
size_t handler_stack_bytes() {
  constexpr int64_t kFewest = 64 << 10;
  return static_cast<size_t>(std::max<int64_t>(kFewest, 4 * ::sysconf(_SC_MINSIGSTKSZ)));
}

/// Handlers of this thread run on a stack of their own: generated code of a matrix product may point the stack register
/// into a buffer on the heap, and a handler would overwrite what lies below (oneDNN issue 4845, up to 3.11).
void use_handler_stack() {
  static char* const memory = new char[handler_stack_bytes()];  // lives as long as the process
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = handler_stack_bytes();
  (void)::sigaltstack(&stack, nullptr);
}

bool is_ignored(int signal) {
  struct sigaction current {};
  return ::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
}

}  // namespace

void install_signal_handlers(std::string_view tool) {
  use_handler_stack();
  if constexpr (!kSanitized) handle_lost_files(tool);
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  (void)::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) (void)::sigaction(signal, &action, nullptr);
  if (!is_ignored(SIGHUP)) (void)::sigaction(SIGHUP, &action, nullptr);
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
    case SIGHUP:
      return "SIGHUP";
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
