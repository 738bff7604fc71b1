#pragma once

#include "device_option.h"

namespace keel {

/// keel-train --doctor: prints what this machine has, what would be used and what would be slow and why. Exit code 0.
int doctor(const DeviceChoice& choice, bool as_json, int threads);

}  // namespace keel
