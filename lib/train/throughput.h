#pragma once

#include "keel/base/export.h"
#include "keel/kernels/common/context.h"
#include "keel/train/settings.h"

namespace keel {

/// FLOP/s at which this machine runs the matrix products of a training step alone: each different product of the step
/// is timed for a moment (about `seconds` in all) and weighted by how often the step runs it. Throws Stopped on a
/// signal.
KEEL_API double measure_product_rate(Context& ctx, const TrainSettings& settings, double seconds);

}  // namespace keel
