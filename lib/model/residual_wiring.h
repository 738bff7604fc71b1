#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "keel/base/export.h"

namespace keel {

enum class NormKind { none, rms, ln };
/// Norms inside attention: none; q and k per head (Qwen3); q and k over their full projected width (OLMo-2); q, k and v
/// per head (HybridNorm).
enum class QkvNorm { none, qk_head, qk_full, qkv_head };
/// The branch of a sublayer.
enum class BranchKind { attention, mlp };
/// Even sublayers are attention.
constexpr BranchKind branch_kind(int64_t l) {
  return l % 2 == 0 ? BranchKind::attention : BranchKind::mlp;
}

/// A learned scale: none, one vector of width d, one scalar shared by both sublayers of the block, or exp(s) with one
/// scalar s a sublayer.
enum class LearnedScale { none, vector, block, exponential };

/// How one residual sublayer is wired:
///
///   u = ns * in_scale * N_in(x),   z = (a * skip_scale) x + (b * branch_scale) N_br(F(u)),   x' = N_out(z)
///
/// with F the branch, see branch_kind(). What is not run: ns other than 1 without an inner norm, b other than 1 with a
/// branch_scale of the block, an in_scale other than a vector, a skip_scale of the block, an exponential branch_scale.
struct Wiring {
  NormKind inner = NormKind::none, branch = NormKind::none, outer = NormKind::none;
  double a = 1, b = 1, ns = 1;
  QkvNorm qkv = QkvNorm::none;
  LearnedScale in_scale = LearnedScale::none, skip_scale = LearnedScale::none, branch_scale = LearnedScale::none;
  bool frozen_skip = false;  ///< the skip_scale is a constant of the model, stored but not trained

  /// Whether the backward pass needs F(u): a norm or a learned scale follows it.
  bool keeps_branch() const {
    return branch != NormKind::none || outer != NormKind::none || branch_scale != LearnedScale::none;
  }

  bool operator==(const Wiring&) const = default;
};

/// What a model may set beside its scheme. Each applies to some schemes only.
struct WiringOverrides {
  std::optional<double> alpha;         ///< replaces the scheme's own skip scale wherever its full form applies
  bool learnable_alpha = false;        ///< that skip scale is learned: alpha exp(s)
  std::optional<double> mix_fraction;  ///< share of the blocks that are Post-LN, 0 to 1
  bool qk_norm = false;                ///< RMS norms of q and k per head, where the scheme has none of its own
  bool frozen_skip = false;            ///< skip vectors that start from a profile are constants
  std::optional<NormKind> norm;        ///< rms or ln in place of the scheme's own kind of norm
};

/// Factors of initializer_range for the matrices, and where learned branch scales start.
struct SchemeInit {
  double output = 1;        ///< of the attention's output projection and the feed-forward's down projection
  double value = 1;         ///< of the value projection
  double mlp_input = 1;     ///< of the gate and up projections
  double branch_scale = 1;  ///< initial value
};

/// A placement of normalisation and its scales. To add one: an entry in residual_wiring.cpp and its test.
struct ResidualScheme {
  std::string_view name;
  std::string_view summary;  ///< one line for listings, with its source
  /// Row of sublayer l (0 = first attention) of a model with `blocks` blocks. Pure.
  Wiring (*row)(int64_t l, int64_t blocks, const WiringOverrides& overrides);
  SchemeInit (*init)(int64_t blocks);
  bool final_norm = false;        ///< whether a norm stands before the head by default
  bool accepts_alpha = false;     ///< whether an alpha override, or a learnable one, has a meaning
  bool accepts_fraction = false;  ///< whether a mix_fraction has
  bool profiled_skip = false;     ///< the skip vectors start from a pass over one batch (skip_profile.h)
  bool fp32_stream = false;       ///< whether the stream must be fp32 (Post-LN-like schemes lose updates in bf16)
};

KEEL_API std::span<const ResidualScheme> residual_schemes();

/// The scheme of that name; an unknown one throws Error(config) with the nearest name.
KEEL_API const ResidualScheme& residual_scheme(std::string_view name);

/// Throws Error(config) naming an override that the scheme has no use for, or whose value is out of its range.
KEEL_API void require_applicable(const ResidualScheme& scheme, const WiringOverrides& overrides);

/// residual_scheme(name).row(l, blocks, overrides), after checking 0 <= l < 2 * blocks and that the overrides apply.
KEEL_API Wiring residual_wiring(std::string_view name, int64_t l, int64_t blocks,
                                const WiringOverrides& overrides = {});

KEEL_API std::string_view to_string(NormKind kind);
/// The kind of that name; anything but rms and ln is Error(config).
KEEL_API NormKind norm_kind(std::string_view name);
KEEL_API std::string_view to_string(QkvNorm kind);
KEEL_API std::string_view to_string(LearnedScale kind);

}  // namespace keel
