#include "keel/base/error.h"

#include "keel/base/utf8.h"

namespace keel {
namespace {

/// A part of a message may come from a file, so its length is anybody's: what is longer loses its end.
std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 1000;
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string join(const std::string& message, const std::string& where, const std::string& hint) {
  std::string line = shortened(message);
  if (!where.empty()) line += " (" + where + ")";
  if (!hint.empty()) line += ": " + hint;
  return line;
}

}  // namespace

struct Error::Parts {
  std::string message, where, hint;
};

Error::Error(ErrorKind kind, const std::string& message) : Error(kind, message, {}) {}

Error::Error(ErrorKind kind, const std::string& message, const std::string& where, const std::string& hint)
    : std::runtime_error(one_line(join(message, where, hint))),
      kind_(kind),
      parts_(std::make_shared<const Parts>(Parts{message, where, hint})) {}

Error Error::at(const std::string& place) const {
  return {kind_, parts_->message, parts_->where.empty() ? place : place + ", " + parts_->where, parts_->hint};
}

int exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::internal:
      return kExitInternal;
    case ErrorKind::usage:
    case ErrorKind::config:
      return kExitUsage;
    case ErrorKind::format:
    case ErrorKind::shape:
      return kExitBadData;
    case ErrorKind::io:
      return kExitIo;
    case ErrorKind::numeric:
      return kExitDiverged;
    case ErrorKind::device:
    case ErrorKind::memory:
      return kExitDevice;
  }
  return kExitInternal;
}

}  // namespace keel
