#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "keel/base/export.h"

namespace keel {

/// What went wrong, by who can mend it. Each kind has one exit code (see exit_code).
enum class ErrorKind {
  internal,  ///< a bug of ours
  usage,     ///< command line: unknown option, missing argument, output that exists
  config,    ///< a config file or value: unknown key, bad value, contradiction
  io,        ///< the system refused: missing file, full disk, permission
  format,    ///< a data file, checkpoint or tokenizer is damaged or foreign
  shape,     ///< tensors that do not fit together
  device,    ///< no such device, or a backend that was not built
  memory,    ///< does not fit
  numeric,   ///< a loss, a gradient or what a model gives is not finite
};

/// The one exception type of the library. what() is one line: "what (where): hint", where and hint optional; control
/// characters in it, from a file's name or its content, stand escaped (one_line in utf8.h), and of a `what` with a
/// `where` at most 1000 bytes are kept.
class KEEL_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);
  /// "message (where): hint"; an empty `where` or `hint` leaves out its part.
  Error(ErrorKind kind, const std::string& message, const std::string& where, const std::string& hint = {});

  ErrorKind kind() const noexcept { return kind_; }

  /// The same error where a caller knows more of the place: "message (place, where): hint".
  Error at(const std::string& place) const;

 private:
  struct Parts;
  ErrorKind kind_;
  std::shared_ptr<const Parts> parts_;  // shared, so that copies cannot throw
};

/// Exit codes of every tool (more, such as 7, 138 and 141, belong to single situations and stand with them).
inline constexpr int kExitOk = 0;
inline constexpr int kExitInternal = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitBadData = 3;
inline constexpr int kExitIo = 4;
inline constexpr int kExitDiverged = 5;
inline constexpr int kExitDevice = 6;

/// internal 1; usage, config 2; format, shape 3; io 4; numeric 5; device, memory 6.
KEEL_API int exit_code(ErrorKind kind) noexcept;

}  // namespace keel
