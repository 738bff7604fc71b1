#include "keel/model/residual_wiring.h"

#include <array>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/suggest.h"

namespace keel {
namespace {

Wiring pre(int64_t, int64_t, const WiringOverrides&) {
  return {.inner = NormKind::rms};
}

Wiring post(int64_t, int64_t, const WiringOverrides&) {
  return {.outer = NormKind::rms};
}

/// The full form N_out(alpha x + F(N_in(x))); alpha = L, the number of sublayers.
Wiring keel_full(int64_t blocks, const WiringOverrides& overrides) {
  return {
      .inner = NormKind::rms, .outer = NormKind::rms, .a = overrides.alpha.value_or(static_cast<double>(2 * blocks))};
}

Wiring keel_v2(int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  if (l == 0) return {.inner = NormKind::rms};
  if (l == 1) return {.inner = NormKind::rms, .outer = NormKind::rms};
  return keel_full(blocks, overrides);
}

Wiring keel_v1(int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  if (l <= 1) return {.inner = NormKind::rms};
  return keel_full(blocks, overrides);
}

constexpr std::array kSchemes{
    ResidualScheme{.name = "keel",
                   .summary = "Post-LN with a skip scaled by the number of sublayers, arXiv:2601.19895 v2",
                   .row = keel_v2,
                   .final_norm = false,
                   .accepts_alpha = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "keel_v1",
                   .summary = "the same without an outer norm after the first FFN, arXiv:2601.19895 v1",
                   .row = keel_v1,
                   .final_norm = false,
                   .accepts_alpha = true,
                   .fp32_stream = true},
    ResidualScheme{.name = "pre",
                   .summary = "norm on each branch's input and a final norm (GPT-2, Llama), arXiv:2002.04745",
                   .row = pre,
                   .final_norm = true,
                   .accepts_alpha = false,
                   .fp32_stream = false},
    ResidualScheme{.name = "post",
                   .summary = "norm on the sum of skip and branch (the original transformer), arXiv:1706.03762",
                   .row = post,
                   .final_norm = false,
                   .accepts_alpha = false,
                   .fp32_stream = true},
};

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
  throw Error(ErrorKind::config, "unknown residual scheme '" + std::string(name) + "'", "", suggestion(name, names));
}

Wiring residual_wiring(std::string_view name, int64_t l, int64_t blocks, const WiringOverrides& overrides) {
  const ResidualScheme& scheme = residual_scheme(name);
  if (l < 0 || l >= 2 * blocks) {
    throw Error(ErrorKind::config, "sublayer " + std::to_string(l) + " of a model with " + std::to_string(2 * blocks));
  }
  if (overrides.alpha && !scheme.accepts_alpha) {
    throw Error(ErrorKind::config, "residual_alpha has no meaning in scheme '" + std::string(name) + "'", "",
                "leave it out or use keel");
  }
  return scheme.row(l, blocks, overrides);
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

std::string_view to_string(QkvNorm kind) {
  switch (kind) {
    case QkvNorm::none:
      return "none";
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
  }
  return "?";
}

}  // namespace keel
