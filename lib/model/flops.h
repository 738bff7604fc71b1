#pragma once

#include <cstdint>

#include "keel/base/export.h"
#include "keel/model/model_config.h"

namespace keel {

// Floating-point operations of matrix products and attention, multiply and add counted apart, of an average token of a
// sequence of this length. Norms, seams and activations come on top: a few percent of them at width 64, below one at 512.

/// Of the branch of sublayer l, forward.
KEEL_API double branch_flops_per_token(const ModelConfig& config, int64_t l, int64_t sequence_length);

/// Of a training step: three times the forward pass, head included; recomputation not counted.
KEEL_API double train_flops_per_token(const ModelConfig& config, int64_t sequence_length);

/// What a training step does again with segments of so many sublayers (DecoderOptions::segment): the forward pass of all
/// branches but the last segment's, and without the output projection of a segment's last branch where no one reads it.
/// 0 for segment 0.
KEEL_API double recompute_flops_per_token(const ModelConfig& config, int64_t sequence_length, int64_t segment);

}  // namespace keel
