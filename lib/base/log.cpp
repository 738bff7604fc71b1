#include "keel/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "keel/base/error.h"
#include "keel/base/suggest.h"
#include "keel/base/terminal_internal.h"
#include "keel/base/utf8.h"

namespace keel::log {
namespace {

constexpr size_t kMostWarnings = 100;

struct State {
  std::mutex mutex;
  Sink sink;
  std::vector<std::string> warnings;
};

/// Never destroyed: messages may come while the program ends.
State& state() {
  static State* const kState = new State;
  return *kState;
}

std::atomic<Level> current_level{Level::off};

void remember(std::vector<std::string>& warnings, std::string_view text) {
  if (warnings.size() >= kMostWarnings) return;
  if (std::find(warnings.begin(), warnings.end(), text) == warnings.end()) warnings.emplace_back(text);
}

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      break;
  }
  return spdlog::level::off;
}

/// "keel-train: warning: text", the kind of message coloured on a terminal.
class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string line(message.logger_name.data(), message.logger_name.size());
    line += ": " + kind(message.level);
    line += one_line({message.payload.data(), message.payload.size()});
    detail::write_stderr_line(line);
  }
  void flush_() override {}

 private:
  std::string kind(spdlog::level::level_enum level) const {
    switch (level) {
      case spdlog::level::debug:
        return paint("debug: ", "36");
      case spdlog::level::warn:
        return paint("warning: ", "33");
      case spdlog::level::err:
        return paint("error: ", "31");
      default:
        return {};
    }
  }

  std::string paint(const char* text, const char* color) const {
    return color_ ? std::string("\x1b[1;") + color + "m" + text + "\x1b[0m" : text;
  }

  bool color_ = detail::stderr_has_color();
};

}  // namespace

void set_sink(Sink sink, Level level) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  current_level.store(sink ? level : Level::off);
  shared.sink = std::move(sink);
}

void set_stderr_sink(const std::string& tool, Level level) {
  auto logger = std::make_shared<spdlog::logger>(tool, std::make_shared<StderrSink>());
  logger->set_level(spdlog_level(level));
  set_sink([logger](Level of_message, std::string_view text) { logger->log(spdlog_level(of_message), text); }, level);
}

Level level() noexcept {
  return current_level.load(std::memory_order_relaxed);
}

Level parse_level(std::string_view name) {
  static const std::array<std::string, 5> kNames = {"debug", "info", "warning", "error", "off"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    throw Error(ErrorKind::usage, "unknown log level '" + std::string(name) + "'", "", suggestion(name, kNames));
  }
  return static_cast<Level>(found - kNames.begin());
}

void message(Level of_message, std::string_view text) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (of_message == Level::warning) remember(shared.warnings, text);
  if (shared.sink && of_message >= level() && of_message != Level::off) shared.sink(of_message, text);
}

std::vector<std::string> warnings() {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  return shared.warnings;
}

void clear_warnings() {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  shared.warnings.clear();
}

}  // namespace keel::log
