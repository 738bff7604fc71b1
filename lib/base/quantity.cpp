#include "keel/base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace keel {
namespace {

constexpr double kLargestExact = 9007199254740992.0;  // 2^53

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  if (!text.empty() && text[0] == '+') {
    text.remove_prefix(1);
    if (!text.empty() && (text[0] == '+' || text[0] == '-')) return std::nullopt;
  }
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// 1000^n or 1024^n for "", "k", "gi", ...; 0 for anything else.
double prefix_factor(std::string_view unit) {
  if (unit.empty()) return 1;
  const size_t power = std::string_view("kmgtp").find(unit[0]);
  if (power == std::string_view::npos || (unit.size() == 2 && unit[1] != 'i') || unit.size() > 2) return 0;
  return std::pow(unit.size() == 2 ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

/// "1h30m": numbers with falling units.
std::optional<double> parse_units(std::string_view text) {
  double seconds = 0;
  double last_unit = std::numeric_limits<double>::infinity();
  while (!text.empty()) {
    const size_t letter = text.find_first_not_of("0123456789.");
    if (letter == std::string_view::npos) return std::nullopt;
    const auto number = parse_real(text.substr(0, letter));
    double unit = 0;
    switch (lower(text[letter])) {
      case 'd':
        unit = 86400;
        break;
      case 'h':
        unit = 3600;
        break;
      case 'm':
        unit = 60;
        break;
      case 's':
        unit = 1;
        break;
      default:
        return std::nullopt;
    }
    if (!number || unit >= last_unit) return std::nullopt;
    seconds += *number * unit;
    last_unit = unit;
    text.remove_prefix(letter + 1);
  }
  return seconds;
}

/// "MM:SS", "HH:MM:SS", "D-HH:MM:SS".
std::optional<double> parse_clock(std::string_view text) {
  double days = 0;
  if (const size_t dash = text.find('-'); dash != std::string_view::npos) {
    const auto number = parse_whole<int64_t>(text.substr(0, dash));
    if (!number || *number < 0) return std::nullopt;
    days = static_cast<double>(*number);
    text.remove_prefix(dash + 1);
  }
  double seconds = 0;
  int parts = 0;
  for (;; ++parts) {
    const size_t colon = text.find(':');
    const std::string_view part = text.substr(0, colon);
    const auto number = parse_whole<int64_t>(part);
    if (!number || *number < 0 || part[0] == '+' || (parts > 0 && *number > 59) || parts > 2) return std::nullopt;
    seconds = seconds * 60 + static_cast<double>(*number);
    if (colon == std::string_view::npos) break;
    text.remove_prefix(colon + 1);
  }
  if (parts < 1 || (days > 0 && parts != 2)) return std::nullopt;
  return days * 86400 + seconds;
}

/// A number with a unit, given in lower case to factor_of, which gives 0 for one that it does not know.
template <class Factor>
std::optional<int64_t> parse_with(std::string_view text, Factor factor_of) {
  size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  if (digits < text.size() && lower(text[digits]) == 'e') {
    digits = std::min(text.find_first_not_of("0123456789+-", digits + 1), text.size());
  }
  std::string unit(text.substr(digits));
  std::transform(unit.begin(), unit.end(), unit.begin(), lower);
  const double factor = factor_of(unit);
  if (factor == 1) {
    if (const auto exact = parse_integer(text.substr(0, digits)); exact && *exact >= 0) return exact;
  }
  const auto number = parse_real(text.substr(0, digits));
  if (!number || factor == 0) return std::nullopt;
  const double value = *number * factor;
  if (value < 0 || value >= 0x1p63 || value != std::floor(value)) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::string three_digits(double value, int more = 0) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals + more);
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  if (const auto exact = parse_whole<int64_t>(text)) return exact;
  const auto real = parse_real(text);
  if (!real || std::abs(*real) > kLargestExact || *real != std::floor(*real)) return std::nullopt;
  return static_cast<int64_t>(*real);
}

std::optional<double> parse_real(std::string_view text) {
  const auto value = parse_whole<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_size(std::string_view text) {
  return parse_with(text, [](std::string_view unit) {
    if (unit.ends_with('b')) unit.remove_suffix(1);
    return prefix_factor(unit);
  });
}

std::optional<int64_t> parse_amount(std::string_view text) {
  return parse_with(text, [](std::string_view unit) { return unit == "b" ? 1e9 : prefix_factor(unit); });
}

std::optional<double> parse_duration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  if (const auto seconds = parse_real(text)) return *seconds >= 0 ? seconds : std::nullopt;
  if (text.find(':') != std::string_view::npos) return parse_clock(text);
  return parse_units(text);
}

namespace {

/// Three digits, and `more`.
std::string bytes_text(int64_t bytes, int more) {
  if (std::abs(static_cast<double>(bytes)) < 1000) return fmt::format("{} bytes", bytes);
  constexpr std::array<const char*, 6> kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  for (; std::abs(value) >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return (value < 0 ? "-" : "") + three_digits(std::abs(value), more) + " " + kUnits[unit];
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  return bytes_text(bytes, 0);
}

std::pair<std::string, std::string> format_bytes_apart(int64_t a, int64_t b) {
  for (int more = 0;; ++more) {
    const std::pair<std::string, std::string> texts{bytes_text(a, more), bytes_text(b, more)};
    if (texts.first != texts.second || a == b) return texts;
    if (more == std::numeric_limits<int64_t>::digits10) return {fmt::format("{} bytes", a), fmt::format("{} bytes", b)};
  }
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return fmt::format("{}", count);
  if (std::abs(count) < 999.5) return fmt::format("{:.3g}", count);
  constexpr std::array<const char*, 6> kUnits = {"k", "M", "G", "T", "P", "E"};
  double value = count / 1000;
  size_t unit = 0;
  for (; std::abs(value) >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return (value < 0 ? "-" : "") + three_digits(std::abs(value)) + kUnits[unit];
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e15) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const int64_t whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t days = whole / 86400;
  const int64_t hours = whole / 3600 % 24;
  const int64_t minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}:{:02}", days, hours, minutes, whole % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  if (whole >= 60) return fmt::format("{}:{:02}", minutes, whole % 60);
  return fmt::format("{} s", whole);
}

std::string format_real(double value) {
  char text[32];
  const auto [end, code] = std::to_chars(text, text + sizeof text, value);
  return code == std::errc() ? std::string(text, end) : std::string();
}

}  // namespace keel
