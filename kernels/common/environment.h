#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "keel/base/error.h"

namespace keel {

/// For a variable of the environment that has a value it may not have. `allowed`: "0 or 1".
[[noreturn]] inline void refuse_variable(const char* name, std::string_view value, const char* allowed) {
  throw Error(ErrorKind::usage, "'" + std::string(value) + "' is no value of this variable of the environment", name,
              std::string("it may be ") + allowed);
}

/// Empty if it is not set.
inline std::string_view environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

/// Of a variable that is 0 or 1; `initial` if it is not set, or empty. Error(usage) for anything else.
inline bool environment_switch(const char* name, bool initial) {
  const std::string_view value = environment_variable(name);
  if (value.empty()) return initial;
  if (value != "0" && value != "1") refuse_variable(name, value, "0 or 1");
  return value == "1";
}

}  // namespace keel
