#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "keel/base/export.h"

namespace keel {

enum class NormKind { none, rms, ln };
/// Norms inside attention: none; q and k over their full projected width (OLMo-2); q, k and v per head (HybridNorm).
enum class QkvNorm { none, qk_full, qkv_head };
/// A learned scale: none, one vector of width d, or one scalar shared by both sublayers of the block.
enum class LearnedScale { none, vector, block };

/// How one residual sublayer is wired:
///
///   u = ns * in_scale * N_in(x),   z = (a * skip_scale) x + (b * branch_scale) N_br(F(u)),   x' = N_out(z)
///
/// with F the attention (even sublayers) or the feed-forward network (odd ones).
struct Wiring {
  NormKind inner = NormKind::none, branch = NormKind::none, outer = NormKind::none;
  double a = 1, b = 1, ns = 1;
  QkvNorm qkv = QkvNorm::none;
  LearnedScale in_scale = LearnedScale::none, skip_scale = LearnedScale::none, branch_scale = LearnedScale::none;

  bool operator==(const Wiring&) const = default;
};

struct WiringOverrides {
  std::optional<double> alpha;  ///< replaces the scheme's own skip scale wherever its full form applies
};

/// A placement of normalisation and its scales. To add one: an entry in residual_wiring.cpp and its test.
struct ResidualScheme {
  std::string_view name;
  std::string_view summary;  ///< one line for listings, with its source
  /// Row of sublayer l (0 = first attention) of a model with `blocks` blocks. Pure.
  Wiring (*row)(int64_t l, int64_t blocks, const WiringOverrides& overrides);
  bool final_norm;     ///< whether a norm stands before the head by default
  bool accepts_alpha;  ///< whether an alpha override has a meaning
  bool fp32_stream;    ///< whether the stream must be fp32 (Post-LN-like schemes lose updates in bf16)
};

KEEL_API std::span<const ResidualScheme> residual_schemes();

/// The scheme of that name; an unknown one throws Error(config) with the nearest name.
KEEL_API const ResidualScheme& residual_scheme(std::string_view name);

/// residual_scheme(name).row(l, blocks, overrides), after checking 0 <= l < 2 * blocks and that the overrides apply.
KEEL_API Wiring residual_wiring(std::string_view name, int64_t l, int64_t blocks,
                                const WiringOverrides& overrides = {});

KEEL_API std::string_view to_string(NormKind kind);
KEEL_API std::string_view to_string(QkvNorm kind);
KEEL_API std::string_view to_string(LearnedScale kind);

}  // namespace keel
