#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/base/export.h"

/// Messages for the user of a tool. The library never prints: messages go to the sink that the program installed, and
/// nowhere without one. All functions may be called from any thread.
namespace keel::log {

enum class Level { debug, info, warning, error, off };

/// Receives messages at or above the level. Calls do not overlap.
using Sink = std::function<void(Level, std::string_view)>;

/// Installs a sink; an empty one switches messages off.
KEEL_API void set_sink(Sink sink, Level level = Level::info);
/// The sink of the tools: "keel-train: message", "keel-train: warning: message" on stderr, a running progress bar moved
/// out of the way, colour only on a terminal without NO_COLOR. Level::error is what --quiet asks for.
KEEL_API void set_stderr_sink(const std::string& tool, Level level);
KEEL_API Level level() noexcept;
/// Error(usage) with the nearest name: "debug", "info", "warning", "error", "off".
KEEL_API Level parse_level(std::string_view name);

KEEL_API void message(Level level, std::string_view text);
/// Warnings since start (or the last call of clear_warnings), whatever the level, each text once, the first 100:
/// reports list them.
KEEL_API std::vector<std::string> warnings();
KEEL_API void clear_warnings();

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::debug) message(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::info) message(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  message(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  message(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace keel::log
