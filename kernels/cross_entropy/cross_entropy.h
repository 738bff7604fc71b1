#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_memory.h"
#include "keel/kernels/common/step_scalars.h"
#include "keel/kernels/common/weight_matrix.h"

namespace keel {

/// The output head and the cross-entropy of its logits, fused: logits = x W^T exist only for `chunk` rows at a time.
///   nll[n]  = logsumexp_v(logits[n,v]) - logits[n, targets[n]]                               in nats
///   loss_sum += sum_n weights[n] nll[n],   weight_sum += sum_n weights[n]                    in double, in row order (on
///                                                                a GPU in another, that depends on nothing but N)
///   d_logits[n,v] = weights[n] (softmax(logits[n])[v] - [v = targets[n]])                    the gradient of the SUM
///   dx = d_logits W,   dW += d_logits^T x
/// Rows of weight 0 cost nothing more than their place and add exact zeros; their nll is 0.
/// The maximum is subtracted first, so that no finite logit overflows; NaN or infinity in a row reaches its nll. Sums
/// over the vocabulary are in double over fp32 partial sums of 512. Every sum of this operation but those of its matrix
/// products is the same for any number of threads. Throws Error(shape) on extents that disagree.
struct CrossEntropy {
  AnyView<const void, 2> x;  ///< [N, d], last axis contiguous; on a GPU it may be bf16, where W is
  WeightMatrix W;            ///< [V, d]: the head, or the embedding where they are tied; of x's type for gradients
  View<const int32_t, 1> targets;  ///< [N], each in [0, V)
  View<const float, 1> weights;    ///< [N], >= 0
  View<float, 2> logits;           ///< [chunk, V] scratch, any chunk >= 1, rows may be strided
  View<StepScalars, 1> scalars;    ///< [1]; loss_sum and weight_sum are added to.  null: not wanted
  View<float, 1> nll;              ///< [N]; null: not wanted
  View<int32_t, 1> argmax = {};    ///< [N], id of the largest logit, of equal ones the lowest; -1 for a row of weight 0
                                   ///< or of NaN alone.  null: not wanted
  AnyView<void, 2> d_logits =
      {};               ///< as logits, of x's type: what the products of the gradients read, for x in bf16 with
                        ///< gradients; null: the place of the logits
  AnyView<void, 2> dx;  ///< [N, d], of x's type, overwritten; may be x.  null: no gradients (dW too)
  View<float, 2> dW;    ///< [V, d] dense, accumulated into; must be given with dx
};
KEEL_API void cross_entropy(Context&, const CrossEntropy&);
/// For N rows at most, beside its matrix products.
KEEL_API void expect_cross_entropy(OperationMemory&, int64_t N);

}  // namespace keel
