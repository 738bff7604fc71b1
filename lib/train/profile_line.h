#pragma once

#include <cstdint>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/model/gradient_profile.h"

namespace keel {

/// A line of profile.jsonl (docs/schemas/profile.json): the numbers of each kind as one array, by sublayer, those of the
/// streams with x_L as the last; gradient norms of a sublayer's tensors by name, then by block. Numbers that are not
/// finite are null and listed by their JSON pointer in "non_finite".
KEEL_API Json profile_line(int64_t step, int64_t tokens, const GradientProfile& profile);

}  // namespace keel
