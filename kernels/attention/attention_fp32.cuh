#pragma once

#include "keel/kernels/attention/attention_device.cuh"

namespace keel {

/// Attention by fp32 arithmetic; few_only: only the sequences in pages that have at most kFewRows rows.
template <class T>
void attention_in_fp32(CudaQueue& queue, const CudaAttentionForward<T>& p, bool few_only);
template <class T>
void attention_backward_in_fp32(CudaQueue& queue, const CudaAttentionBackward<T>& p);

/// delta[h,n] = d_out . out for the rows of the sequences.
template <class T>
void attention_delta(CudaQueue& queue, const CudaAttentionBackward<T>& p);

}  // namespace keel
