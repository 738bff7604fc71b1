#pragma once

#include "keel/base/export.h"
#include "keel/model/decoder.h"

namespace keel {

/// The start of Admin's skip vectors from one pass over a batch:                                     arXiv:2004.08249
///   omega_0 = 1,   omega_{l+1}^2 = Var(omega_l x_l) + Var(F_l)
/// each one value for all entries of its vector, variances over the whole [tokens, hidden_size] tensor, in double. The
/// pass runs with the values as they are found. The decoder holds all sublayers; only schemes with a profiled skip have
/// such vectors. False if interrupted: some are then set and others not.
KEEL_API bool profile_skip_scales(Context& ctx, Decoder& decoder, const ParameterBuffers& parameters,
                                  const FlatBatch& batch);

}  // namespace keel
