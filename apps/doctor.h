#pragma once

#include "device_option.h"

namespace keel {

/// keel-train --doctor: prints what this machine has, what would be used and what would be slow and why. A GPU that would
/// be used is tried: a product runs on it. Error(device), after all is printed, if that failed.
int doctor(const DeviceChoice& choice, bool as_json, int threads);

}  // namespace keel
