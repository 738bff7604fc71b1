#include "keel/base/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <nlohmann/json.hpp>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/json.h"
#include "keel/base/quantity.h"
#include "keel/base/suggest.h"
#include "keel/base/terminal_internal.h"
#include "keel/base/utf8.h"

namespace keel {
namespace {

/// Where a job is: what every style of showing it needs.
struct ProgressState {
  std::string label;
  std::string unit;
  int64_t total = 0;
  int64_t first = 0;
  int64_t done = 0;
  double seconds = 0;
  bool show_rate = true;
  std::vector<ProgressField> fields;
};

/// Units a second over the last half minute or so.
class RateMeter {
 public:
  void reset(int64_t done) { samples_ = {{0.0, done}}; }

  double rate(double seconds, int64_t done) {
    const auto [since, count] = samples_.front();
    const double rate = seconds > since ? static_cast<double>(done - count) / (seconds - since) : 0;
    if (seconds - samples_.back().first >= kStep) samples_.emplace_back(seconds, done);
    while (samples_.size() > 2 && seconds - samples_.front().first > kWindow) samples_.pop_front();
    return rate;
  }

 private:
  static constexpr double kStep = 2;
  static constexpr double kWindow = 30;
  std::deque<std::pair<double, int64_t>> samples_ = {{0.0, 0}};
};

/// Keeps the state and the clock, and decides when to show.
class TimedProgress : public Progress {
 public:
  explicit TimedProgress(double interval) : interval_(interval) {}

  void start(std::string_view label, int64_t total, std::string_view unit, int64_t done, bool show_rate) override {
    if (running_) finish();
    state_ = {std::string(label), std::string(unit), total, done, done, 0, show_rate, {}};
    watch_.restart();
    meter_.reset(done);
    last_shown_ = 0;
    running_ = true;
    show(state_, 0);
  }

  void update(int64_t done, std::span<const ProgressField> fields) override {
    if (!running_) return;
    state_.done = done;
    state_.fields.assign(fields.begin(), fields.end());
    const double now = watch_.seconds();
    if (now - last_shown_ < interval_) return;
    last_shown_ = now;
    state_.seconds = now;
    show(state_, meter_.rate(now, done));
  }

  void finish() override {
    if (!running_) return;
    running_ = false;
    state_.seconds = watch_.seconds();
    const double whole = static_cast<double>(state_.done - state_.first);
    show_last(state_, state_.seconds > 0 ? whole / state_.seconds : 0);
  }

 protected:
  virtual void show(const ProgressState& state, double rate) = 0;
  virtual void show_last(const ProgressState& state, double rate) { show(state, rate); }

 private:
  double interval_;
  ProgressState state_;
  RateMeter meter_;
  Stopwatch watch_;
  double last_shown_ = 0;
  bool running_ = false;
};

std::string count_text(const ProgressState& state) {
  std::string text = fmt::format("{}", state.done);
  if (state.total > 0) text += fmt::format("/{}", state.total);
  return text + " " + state.unit;
}

int percent(const ProgressState& state) {
  const double share = static_cast<double>(state.done) / static_cast<double>(std::max<int64_t>(1, state.total));
  return static_cast<int>(std::clamp(100 * share, 0.0, 100.0));
}

double remaining_seconds(const ProgressState& state, double rate) {
  return rate > 0 ? static_cast<double>(std::max<int64_t>(0, state.total - state.done)) / rate : -1;
}

/// "loss 3.2140", "12.3 steps/s": fields, then the rate.
std::vector<std::string> details(const ProgressState& state, double rate) {
  std::vector<std::string> parts;
  for (const ProgressField& field : state.fields) {
    parts.push_back(field.name + (" " + fmt::format(fmt::runtime(field.format), field.value)));
  }
  if (state.show_rate && rate > 0) parts.push_back(fmt::format("{} {}/s", format_count(rate), state.unit));
  return parts;
}

std::string details_text(const ProgressState& state, double rate) {
  std::string text;
  for (const std::string& part : details(state, rate)) text += "  " + part;
  return text;
}

/// "[=====>    ] ", that many columns wide.
std::string bar_text(int percent, size_t columns) {
  constexpr size_t kAround = 3;  // brackets and a space
  const size_t width = columns - kAround;
  const size_t filled = width * static_cast<size_t>(percent) / 100;
  std::string bar(filled, '=');
  if (filled < width) bar += '>';
  bar.resize(width, ' ');
  return "[" + bar + "] ";
}

/// "train [====>    ]  45% 450/1000 steps  loss 3.2140  ETA 12:05" within the columns. Percentage, count, the first
/// detail and ETA come before everything; then a bar, the other details in their order, and a longer bar.
std::string bar_line(const ProgressState& state, double rate, size_t columns) {
  constexpr size_t kBar = 13, kShortest = 8, kLongest = 33;
  const bool has_total = state.total > 0;
  const double left = has_total ? remaining_seconds(state, rate) : -1;
  const std::string share = has_total ? fmt::format("{:3}% ", percent(state)) : "";
  const std::string eta = left >= 0 ? "  ETA " + format_duration(left) : "";
  const std::vector<std::string> parts = details(state, rate);
  std::string label = state.label + " ", count = count_text(state), shown = parts.empty() ? "" : "  " + parts[0];

  const auto used = [&] { return label.size() + share.size() + count.size() + shown.size() + eta.size(); };
  if (used() > columns) label.clear();
  if (used() > columns) count.resize(count.size() - state.unit.size() - 1);
  if (used() > columns) shown.clear();
  const size_t bar = has_total && used() + kBar <= columns ? kBar : 0;
  for (size_t i = 1; i < parts.size() && used() + bar + 2 + parts[i].size() <= columns; ++i) shown += "  " + parts[i];
  const size_t room = columns > used() ? std::min(columns - used(), kLongest) : 0;
  const std::string drawn = has_total && room >= kShortest ? bar_text(percent(state), room) : "";
  return (label + drawn + share + count + shown + eta).substr(0, columns);
}

class PlainProgress : public TimedProgress {
 public:
  explicit PlainProgress(std::string tool) : TimedProgress(5), tool_(std::move(tool)) {}

 protected:
  void show(const ProgressState& state, double rate) override {
    const double left = remaining_seconds(state, rate);
    const bool has_eta = state.total > 0 && left >= 0;
    write(state, rate, has_eta ? "  ETA " + format_duration(left) : "");
  }

  void show_last(const ProgressState& state, double rate) override {
    write(state, rate, "  in " + format_duration(state.seconds));
  }

 private:
  void write(const ProgressState& state, double rate, const std::string& end) const {
    std::string line = tool_ + ": " + state.label + " " + count_text(state);
    if (state.total > 0) line += fmt::format(" ({}%)", percent(state));
    detail::write_stderr_line(one_line(line + details_text(state, rate) + end));
  }

  std::string tool_;
};

class JsonProgress : public TimedProgress {
 public:
  JsonProgress() : TimedProgress(1) {}

 protected:
  void show(const ProgressState& state, double rate) override { write(state, rate, false); }
  void show_last(const ProgressState& state, double rate) override { write(state, rate, true); }

 private:
  static void write(const ProgressState& state, double rate, bool finished) {
    Json line = {{"progress", state.label}, {"done", state.done}};
    line["total"] = state.total > 0 ? Json(state.total) : Json(nullptr);
    line["unit"] = state.unit;
    line["seconds"] = state.seconds;
    if (rate > 0) line["rate"] = rate;
    if (const double left = remaining_seconds(state, rate); state.total > 0 && left >= 0) line["eta_seconds"] = left;
    for (const ProgressField& field : state.fields) set_number(line, field.name, field.value);
    line["finished"] = finished;
    detail::write_stderr_line(json_text(line));
  }
};

class BarProgress : public TimedProgress {
 public:
  explicit BarProgress(std::string tool) : TimedProgress(0.1), tool_(std::move(tool)) {}
  ~BarProgress() override { detail::draw_stderr_bar(""); }

 protected:
  void show(const ProgressState& state, double rate) override {
    const auto columns = static_cast<size_t>(std::max(10, detail::stderr_columns() - 1));
    detail::draw_stderr_bar(one_line(bar_line(state, rate, columns)));
  }

  void show_last(const ProgressState& state, double rate) override {
    detail::draw_stderr_bar("");
    detail::write_stderr_line(one_line(tool_ + ": " + state.label + " " + count_text(state) +
                                       details_text(state, rate) + "  in " + format_duration(state.seconds)));
  }

 private:
  std::string tool_;
};

class NoProgress : public Progress {
 public:
  void start(std::string_view, int64_t, std::string_view, int64_t, bool) override {}
  void update(int64_t, std::span<const ProgressField>) override {}
  void finish() override {}
};

}  // namespace

Progress::~Progress() = default;

std::unique_ptr<Progress> make_progress(ProgressMode mode, const std::string& tool) {
  switch (mode) {
    case ProgressMode::automatic:
      if (detail::stderr_is_terminal()) return std::make_unique<BarProgress>(tool);
      return std::make_unique<PlainProgress>(tool);
    case ProgressMode::plain:
      return std::make_unique<PlainProgress>(tool);
    case ProgressMode::json:
      return std::make_unique<JsonProgress>();
    case ProgressMode::none:
      break;
  }
  return std::make_unique<NoProgress>();
}

Progress& no_progress() {
  static NoProgress none;
  return none;
}

ProgressMode parse_progress_mode(std::string_view name) {
  static const std::array<std::string, 4> kNames = {"auto", "plain", "json", "none"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    throw Error(ErrorKind::usage, "unknown progress mode '" + std::string(name) + "'", "", suggestion(name, kNames));
  }
  return static_cast<ProgressMode>(found - kNames.begin());
}

}  // namespace keel
