#pragma once

#include "keel/base/options.h"

namespace keel {

/// --list-schemes.
Option list_schemes_option();
/// Prints the residual schemes, a line or (as JSON) an object each. The program's exit code.
int list_schemes(bool as_json);

}  // namespace keel
