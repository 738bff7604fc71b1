#include "keel/base/error.h"

#include "keel/base/utf8.h"

namespace keel {
namespace {

std::string join(const std::string& message, const std::string& where, const std::string& hint) {
  std::string line = message;
  if (!where.empty()) line += " (" + where + ")";
  if (!hint.empty()) line += ": " + hint;
  return line;
}

}  // namespace

Error::Error(ErrorKind kind, const std::string& message) : std::runtime_error(one_line(message)), kind_(kind) {}

Error::Error(ErrorKind kind, const std::string& message, const std::string& where, const std::string& hint)
    : Error(kind, join(message, where, hint)) {}

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
