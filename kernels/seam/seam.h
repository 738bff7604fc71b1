#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// A seam joins the end of one residual sublayer to the start of the next, in one pass over the stream:
///
///   z = a s x + b t F                                 the sum of skip and branch, never stored; s, t vectors, or 1
///   y = N_out(z)            or z                      the next sublayer's stream
///   u = c N_in(y)           or y, or nothing          the next sublayer's branch input (the final norm at the end)
///
/// N_in, and N_out without outer_bias, are RMS norms N(v) = g v r, r = (mean(v^2) + eps)^(-1/2). With outer_bias N_out is
/// LayerNorm: N(v) = g (v - m) r + bias, m = mean(v), r = (mean((v - m)^2) + eps)^(-1/2); an inner norm does not stand
/// behind it.
/// Forms from one source: outer norm none, RMS or LayerNorm; inner norm or not; scales or not.
///                                         Keel, arXiv:2601.19895; the one-sweep backward is derived in docs/seam.md.
///
/// All matrices are [rows, d], last axis contiguous. The stream is fp32 (in bf16 it loses most of a deep Keel's updates);
/// what goes into a branch and comes out of one, F and u, and their gradients are fp32 or, on a GPU, bf16, all alike.
struct SeamForward {
  View<const float, 2> x;                         ///< stream entering the sublayer
  AnyView<const void, 2> F;                       ///< its branch output; null: there is none, and b is 0
  View<const float, 1> a, b;                      ///< [1] each: skip and branch scale, read from device memory
  View<const float, 1> skip_scale, branch_scale;  ///< s, t: [d] each; null: 1
  View<const float, 1> outer_gain;                ///< [d]; null: no outer norm
  View<const float, 1> outer_bias;                ///< [d], beside outer_gain only; null: RMS
  View<const float, 1> inner_gain;                ///< [d]; null: no inner norm
  float inner_factor = 1;                         ///< c
  float outer_eps = 1e-5F, inner_eps = 1e-5F;
  View<float, 2> y;                 ///< may be x or F
  AnyView<void, 2> u;               ///< may be F, not y; null without an inner norm, but in bf16
  View<float, 1> outer_r, inner_r;  ///< r, [rows] each, kept for backward; null where the norm is absent
  View<float, 1> outer_mean;        ///< m, [rows]; with outer_bias only
};
KEEL_API void seam_forward(Context&, const SeamForward&);

/// u = c N_in(y) once more from y and the inverse root mean squares that seam_forward kept, with the same bits.
/// y, u: [rows, d], last axis contiguous; u may be y.  inner_gain: [d].  inner_r: [rows].
KEEL_API void seam_inner_again(Context&, View<const float, 2> y, View<const float, 1> inner_gain, float inner_factor,
                               View<const float, 1> inner_r, AnyView<void, 2> u);

/// The exact derivative, recomputing z from x and F. Ds is the gradient that reaches y along the next skip, Du that of
/// u; without an inner norm the branch input of the next sublayer is y itself: then Du, if given, is added to Ds.
///   dx = a s dz (the Ds of the seam before),  dF = b t dz,  gains, bias and scales += ..,
///   d_a += <dz, s x>,  d_b += <dz, t F>
struct SeamBackward {
  View<const float, 2> x;    ///< as in forward; read with an outer norm, and where d_a or d_skip_scale is wanted
  AnyView<const void, 2> F;  ///< as in forward; read with an outer norm, and where d_b or d_branch_scale is wanted
  View<const float, 2> y;    ///< the stream after the seam; read only when there is no outer norm but an inner one
  View<const float, 1> a, b, skip_scale, branch_scale, outer_gain, outer_bias, inner_gain;
  float inner_factor = 1;
  float outer_eps = 1e-5F, inner_eps = 1e-5F;
  View<const float, 1> outer_r, inner_r, outer_mean;
  View<const float, 2> Ds;                      ///< null = zero (the last seam before the head when only u is used)
  AnyView<const void, 2> Du;                    ///< null = zero; Ds and Du are not both null
  View<float, 2> dx;                            ///< overwritten; may be Ds
  AnyView<void, 2> dF;                          ///< overwritten; may be Du or F, not dx
  View<float, 1> d_outer_gain, d_inner_gain;    ///< [d], accumulated into; null where the norm is absent
  View<float, 1> d_outer_bias;                  ///< [d], accumulated into; null for RMS
  View<float, 1> d_skip_scale, d_branch_scale;  ///< [d], accumulated into, only with these scales; null: not wanted
  View<float, 1> d_a, d_b;                      ///< [1], accumulated into; null: not wanted
  RowSums sums = RowSums::everything;           ///< add_up reads `partial` only
  View<float, 2> partial;  ///< [chunk_count(rows), seam_partial_columns(..)] scratch: row sums go over fixed chunks
};
KEEL_API void seam_backward(Context&, const SeamBackward&);

/// Whether a seam has vectors beside its gains: outer_bias, skip_scale or branch_scale.
KEEL_API bool seam_has_vectors(const SeamBackward&);
/// Columns of the scratch matrix; `vectors` as seam_has_vectors says.
constexpr int64_t seam_partial_columns(int64_t d, bool vectors) {
  return (vectors ? 5 : 2) * d + 2;
}

}  // namespace keel
