#pragma once

#include <string_view>

#include "keel/base/export.h"

namespace keel {

/// Thrown when the reader of stdout has gone (`... | head`). run_tool ends quietly with exit code 141.
struct KEEL_API ClosedPipe {};

inline constexpr int kExitClosedPipe = 141;

/// Writes results to stdout, buffered. Error(io) if the system refuses, ClosedPipe if nobody reads any more.
KEEL_API void write_stdout(std::string_view text);
/// Hands everything written to the system. Same errors.
KEEL_API void flush_stdout();

}  // namespace keel
