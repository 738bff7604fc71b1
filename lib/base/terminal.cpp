#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>

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

std::optional<int> terminal_columns(int descriptor) {
  struct winsize size {};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

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
  return terminal_columns(STDERR_FILENO).value_or(80);
}

int stdout_columns(int otherwise) {
  const auto columns = terminal_columns(STDOUT_FILENO);
  return columns ? std::clamp(*columns, 60, 120) : otherwise;
}

}  // namespace keel::detail
