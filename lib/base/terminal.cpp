#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "keel/base/terminal_internal.h"

namespace keel::detail {
namespace {

struct Terminal {
  std::mutex mutex;
  std::string bar;
};

/// Never destroyed: messages may come while the program ends.
Terminal& terminal() {
  static Terminal* const kTerminal = new Terminal;
  return *kTerminal;
}

constexpr std::string_view kEraseLine = "\r\x1b[K";

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void write_stderr_line(std::string_view line) {
  Terminal& shared = terminal();
  const std::lock_guard lock(shared.mutex);
  std::string out(shared.bar.empty() ? std::string_view{} : kEraseLine);
  out += line;
  out += '\n';
  out += shared.bar;
  put(out);
}

void draw_stderr_bar(std::string_view bar) {
  Terminal& shared = terminal();
  const std::lock_guard lock(shared.mutex);
  if (bar.empty() && shared.bar.empty()) return;
  put(std::string(kEraseLine) + std::string(bar));
  shared.bar = bar;
}

bool stderr_is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

bool stderr_has_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return stderr_is_terminal() && (no_color == nullptr || *no_color == '\0');
}

int stderr_columns() {
  struct winsize size {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace keel::detail
