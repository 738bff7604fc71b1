#include "keel/model/residual_wiring.h"

#include <array>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/suggest.h"

namespace keel {
namespace {

// Rows of spec'd schemes, one function each; l counts sublayers from 0, even ones are attention.

/// Norms are RMS unless the model says otherwise.
NormKind norm_or(const WiringOverrides& overrides, NormKind own = NormKind::rms) {
  return overrides.norm.value_or(own);
}

bool is_attention(int64_t l) {
  return branch_kind(l) == BranchKind::attention;
}

Wiring pre(int64_t, int64_t, const WiringOverrides& overrides) {
  return {.inner = norm_or(overrides)};
}

Wiring post(int64_t, int64_t, const WiringOverrides& overrides) {
  return {.outer = norm_or(overrides)};
}

/// The skip scale of a full form, by default `own`.
void scale_skip(Wiring& wiring, const WiringOverrides& overrides, double own) {
  wiring.a = overrides.alpha.value_or(own);
  if (overrides.learnable_alpha) wiring.skip_scale = LearnedScale::exponential;
}

/// alpha x + ..., alpha = L, the number of sublayers, but for the first two: as Keel v2, a = 1 and no outer norm at l = 0.
Wiring with_keel_skip(Wiring wiring, int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  if (l >= 1) wiring.outer = norm_or(overrides);
  if (l >= 2) scale_skip(wiring, overrides, static_cast<double>(2 * blocks));
  return wiring;
}

Wiring keel(int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  return with_keel_skip({.inner = norm_or(overrides)}, l, blocks, overrides);
}

Wiring keel_v1(int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  if (l <= 1) return {.inner = norm_or(overrides)};
  return keel(l, blocks, overrides);
}

Wiring keel_attempt1(int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  return with_keel_skip({}, l, blocks, overrides);
}

Wiring keel_attempt2(int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  return with_keel_skip({.in_scale = LearnedScale::vector}, l, blocks, overrides);
}

Wiring keel_attempt3(int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  return with_keel_skip({.inner = norm_or(overrides), .in_scale = LearnedScale::vector}, l, blocks, overrides);
}

Wiring deepnorm(int64_t, int64_t blocks, const WiringOverrides& overrides) {
  Wiring wiring{.outer = norm_or(overrides, NormKind::ln)};
  scale_skip(wiring, overrides, std::pow(2.0 * static_cast<double>(blocks), 0.25));
  return wiring;
}

/// beta = (8M)^(-1/4). The gate has it too, as in every implementation with SwiGLU but torchscale's.
SchemeInit deepnorm_init(int64_t blocks) {
  const double beta = std::pow(8.0 * static_cast<double>(blocks), -0.25);
  return {.output = beta, .value = beta, .mlp_input = beta};
}

Wiring hybrid(int64_t l, int64_t, const WiringOverrides& overrides) {
  if (!is_attention(l)) return {};
  return {.outer = norm_or(overrides), .qkv = QkvNorm::qkv_head};
}

Wiring hybrid_star(int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  if (l >= 2) return hybrid(l, blocks, overrides);
  return {.inner = norm_or(overrides), .qkv = is_attention(l) ? QkvNorm::qkv_head : QkvNorm::none};
}

SchemeInit hybrid_init(int64_t blocks) {
  return {.output = 1 / std::sqrt(2.0 * static_cast<double>(blocks))};
}

/// Rounding up, so that any fraction above 0 gives a Post-LN block, but not for the last bit of a product.
Wiring mix(int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  const double post_blocks = std::ceil(overrides.mix_fraction.value_or(0.25) * static_cast<double>(blocks) - 1e-6);
  return static_cast<double>(l / 2) < post_blocks ? post(l, blocks, overrides) : pre(l, blocks, overrides);
}

Wiring admin(int64_t, int64_t, const WiringOverrides& overrides) {
  return {.outer = norm_or(overrides, NormKind::ln), .skip_scale = LearnedScale::vector};
}

Wiring lns(int64_t l, int64_t, const WiringOverrides& overrides) {
  return {.inner = norm_or(overrides), .ns = std::pow(static_cast<double>(l / 2 + 1), -0.5)};
}

Wiring sandwich(int64_t, int64_t, const WiringOverrides& overrides) {
  return {.inner = norm_or(overrides), .branch = norm_or(overrides)};
}

Wiring olmo2(int64_t l, int64_t, const WiringOverrides& overrides) {
  return {.branch = norm_or(overrides), .qkv = is_attention(l) ? QkvNorm::qk_full : QkvNorm::none};
}

Wiring rezero(int64_t, int64_t, const WiringOverrides&) {
  return {.branch_scale = LearnedScale::block};
}

SchemeInit rezero_init(int64_t) {
  return {.branch_scale = 0};
}

Wiring layerscale(int64_t, int64_t, const WiringOverrides& overrides) {
  return {.inner = norm_or(overrides), .branch_scale = LearnedScale::vector};
}

/// The paper's values by depth.
SchemeInit layerscale_init(int64_t blocks) {
  return {.branch_scale = blocks <= 18 ? 0.1 : (blocks <= 24 ? 1e-5 : 1e-6)};
}

SchemeInit same_init(int64_t) {
  return {};
}

constexpr std::array kSchemes{
    ResidualScheme{.name = "keel",
                   .summary = "Post-LN, skip times number of sublayers, arXiv:2601.19895 v2",
                   .row = keel,
                   .init = same_init,
                   .accepts_alpha = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "keel_v1",
                   .summary = "the same, no outer norm after the first FFN, arXiv:2601.19895 v1",
                   .row = keel_v1,
                   .init = same_init,
                   .accepts_alpha = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "keel_attempt1",
                   .summary = "Keel's skip alone, without inner norms (its ablation path)",
                   .row = keel_attempt1,
                   .init = same_init,
                   .accepts_alpha = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "keel_attempt2",
                   .summary = "the same with a learned vector on each branch's input",
                   .row = keel_attempt2,
                   .init = same_init,
                   .accepts_alpha = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "keel_attempt3",
                   .summary = "the same with an inner norm and a learned vector behind it",
                   .row = keel_attempt3,
                   .init = same_init,
                   .accepts_alpha = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "pre",
                   .summary = "norm on each branch's input (GPT-2, Llama), arXiv:2002.04745",
                   .row = pre,
                   .init = same_init,
                   .final_norm = true},
    ResidualScheme{.name = "post",
                   .summary = "norm on the sum of skip and branch, arXiv:1706.03762",
                   .row = post,
                   .init = same_init,
                   .fp32_stream = true},
    ResidualScheme{.name = "deepnorm",
                   .summary = "Post-LN, skip times (2M)^(1/4), smaller start, arXiv:2203.00555",
                   .row = deepnorm,
                   .init = deepnorm_init,
                   .accepts_alpha = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "hybrid",
                   .summary = "HybridNorm: norms in and after attention, arXiv:2503.04598",
                   .row = hybrid,
                   .init = hybrid_init,
                   .final_norm = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "hybrid_star",
                   .summary = "the same with a Pre-LN first block (HybridNorm*)",
                   .row = hybrid_star,
                   .init = hybrid_init,
                   .final_norm = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "mix",
                   .summary = "Mix-LN: first blocks Post-LN, others Pre-LN, arXiv:2412.13795",
                   .row = mix,
                   .init = same_init,
                   .final_norm = true,
                   .accepts_fraction = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "admin",
                   .summary = "Post-LN with skip vectors from a profiling pass, arXiv:2004.08249",
                   .row = admin,
                   .init = same_init,
                   .profiled_skip = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "lns",
                   .summary = "Pre-LN, norms divided by sqrt(block number), arXiv:2502.05795",
                   .row = lns,
                   .init = same_init,
                   .final_norm = true},
    ResidualScheme{.name = "sandwich",
                   .summary = "norms on each branch's input and output, arXiv:2502.02732",
                   .row = sandwich,
                   .init = same_init,
                   .final_norm = true},
    ResidualScheme{.name = "olmo2",
                   .summary = "norm on each branch's output, and of q and k, arXiv:2501.00656",
                   .row = olmo2,
                   .init = same_init,
                   .final_norm = true},
    ResidualScheme{.name = "rezero",
                   .summary = "no norms, a learned scalar a block from 0 on, arXiv:2003.04887",
                   .row = rezero,
                   .init = rezero_init},
    ResidualScheme{.name = "layerscale",
                   .summary = "Pre-LN, branches times small learned vectors, arXiv:2103.17239",
                   .row = layerscale,
                   .init = layerscale_init,
                   .final_norm = true},
};

/// A scheme that asks for what no code runs is a mistake in this file.
void require_implemented(const ResidualScheme& scheme, const Wiring& w) {
  const auto is_vector_or_none = [](LearnedScale scale) {
    return scale == LearnedScale::none || scale == LearnedScale::vector;
  };
  const bool runs = (w.ns == 1 || w.inner != NormKind::none) && (w.b == 1 || w.branch_scale != LearnedScale::block) &&
                    is_vector_or_none(w.in_scale) && w.skip_scale != LearnedScale::block &&
                    w.branch_scale != LearnedScale::exponential;
  if (!runs) {
    throw Error(ErrorKind::internal, "scheme " + quoted_name(scheme.name) + " combines scales that no code runs", "",
                "residual_wiring.h names the combinations");
  }
}

/// Schemes with this property, for a hint.
std::string names_where(bool ResidualScheme::*property) {
  std::string names;
  for (const ResidualScheme& scheme : kSchemes) {
    if (scheme.*property) names += (names.empty() ? "" : ", ") + std::string(scheme.name);
  }
  return names;
}

}  // namespace

std::span<const ResidualScheme> residual_schemes() {
  return kSchemes;
}

const ResidualScheme& residual_scheme(std::string_view name) {
  for (const ResidualScheme& scheme : kSchemes) {
    if (scheme.name == name) return scheme;
  }
  std::vector<std::string> names;
  for (const ResidualScheme& scheme : kSchemes) names.emplace_back(scheme.name);
  throw Error(ErrorKind::config, "unknown residual_scheme " + quoted_name(name), "", suggestion(name, names));
}

void require_applicable(const ResidualScheme& scheme, const WiringOverrides& overrides) {
  const std::string none = "has no meaning in scheme " + quoted_name(scheme.name);
  if (overrides.alpha && !scheme.accepts_alpha) {
    throw Error(ErrorKind::config, fmt::format("residual_alpha {} {}", *overrides.alpha, none), "",
                "leave it out; these have one: " + names_where(&ResidualScheme::accepts_alpha));
  }
  const auto alpha = static_cast<float>(overrides.alpha.value_or(1));
  if (!(alpha > 0 && std::isfinite(alpha))) {
    throw Error(ErrorKind::config,
                fmt::format("residual_alpha must be above 0 as a 32-bit number, not {}", *overrides.alpha));
  }
  if (overrides.learnable_alpha && !scheme.accepts_alpha) {
    throw Error(ErrorKind::config, "learnable_alpha true " + none, "",
                "leave it out; these have one: " + names_where(&ResidualScheme::accepts_alpha));
  }
  if (overrides.frozen_skip && !scheme.profiled_skip) {
    throw Error(ErrorKind::config, "admin_frozen true " + none, "",
                "leave it out, or use " + names_where(&ResidualScheme::profiled_skip));
  }
  if (overrides.qk_norm && scheme.row(0, 1, {}).qkv != QkvNorm::none) {
    throw Error(ErrorKind::config, "qk_norm true " + none, "",
                "leave it out: the scheme norms queries and keys itself");
  }
  if (!overrides.mix_fraction) return;
  if (!scheme.accepts_fraction) {
    throw Error(ErrorKind::config, fmt::format("mix_fraction {} {}", *overrides.mix_fraction, none), "",
                "leave it out, or use " + names_where(&ResidualScheme::accepts_fraction));
  }
  if (!(*overrides.mix_fraction >= 0 && *overrides.mix_fraction <= 1)) {
    throw Error(ErrorKind::config, fmt::format("mix_fraction must be from 0 to 1, not {}", *overrides.mix_fraction));
  }
}

Wiring residual_wiring(std::string_view name, int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  const ResidualScheme& scheme = residual_scheme(name);
  if (l < 0 || l >= 2 * blocks) {
    throw Error(ErrorKind::config, "sublayer " + std::to_string(l) + " of a model with " + std::to_string(2 * blocks));
  }
  require_applicable(scheme, overrides);
  Wiring wiring = scheme.row(l, blocks, overrides);
  wiring.frozen_skip = overrides.frozen_skip;
  if (overrides.qk_norm && is_attention(l)) wiring.qkv = QkvNorm::qk_head;
  require_implemented(scheme, wiring);
  return wiring;
}

std::string_view to_string(NormKind kind) {
  switch (kind) {
    case NormKind::none:
      return "none";
    case NormKind::rms:
      return "rms";
    case NormKind::ln:
      return "ln";
  }
  return "?";
}

NormKind norm_kind(std::string_view name) {
  for (const NormKind kind : {NormKind::rms, NormKind::ln}) {
    if (to_string(kind) == name) return kind;
  }
  throw Error(ErrorKind::config, "norm_type " + quoted_name(name) + " is neither rms nor ln");
}

std::string_view to_string(QkvNorm kind) {
  switch (kind) {
    case QkvNorm::none:
      return "none";
    case QkvNorm::qk_head:
      return "qk_head";
    case QkvNorm::qk_full:
      return "qk_full";
    case QkvNorm::qkv_head:
      return "qkv_head";
  }
  return "?";
}

std::string_view to_string(LearnedScale kind) {
  switch (kind) {
    case LearnedScale::none:
      return "none";
    case LearnedScale::vector:
      return "vector";
    case LearnedScale::block:
      return "block";
    case LearnedScale::exponential:
      return "exponential";
  }
  return "?";
}

}  // namespace keel
