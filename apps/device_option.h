#pragma once

#include <string>

#include "keel/base/options.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// What --device asks for; without it the first GPU, if the machine has one, this build a backend for it, and it takes a
/// kernel; else the CPU, with a warning where there is a GPU. Whether a device that was named is there shows when a
/// Context is made. Error(usage) for a name that is none.
DeviceChoice device_choice(const Options& options);

/// "cpu", "cuda:N" or "cuda-emulated", as reports name it.
std::string to_string(const DeviceChoice& choice);

}  // namespace keel
