// Attention backward in bf16 on tensor cores. Blocks own rows of queries for dq, keys for dk and dv.

#include <climits>

#include "keel/kernels/attention/attention_fp32.cuh"
#include "keel/kernels/attention/attention_tensor.cuh"

namespace keel {
namespace {

template <int kDim>
struct BackwardTile {
  static constexpr int kOwn = 16 * kTensorWarps;             ///< rows that a block owns, 16 a warp
  static constexpr int kOther = kDim <= 64 ? 64 : 32;        ///< rows that come by, tile by tile
  static constexpr int kColumns = kDim <= 128 ? kDim : 128;  ///< of dk and dv that a block computes
  static constexpr int kOwnHalves = kOwn * kPitch<kDim>, kOtherHalves = kOther * kPitch<kDim>;
  static constexpr size_t kBytes = (2 * kOwnHalves + 4 * kOtherHalves) * sizeof(Half);
};

template <int kN>
__device__ inline void clear(Fragments<1, kN>& sums) {
#pragma unroll
  for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[0][n][i] = 0;
  }
}

template <int kDim>
__global__ void __launch_bounds__(kTensorThreads) query_gradients(CudaAttentionBackward<Half> p, AttentionCut cut) {
  using Tile = BackwardTile<kDim>;
  constexpr int kKeys = Tile::kOther;
  const CudaAttentionSizes& z = cut.sizes;
  const Divisor& group = cut.group;
  const int64_t kv_head = blockIdx.y;
  const int width = static_cast<int>(z.head_dim);
  const AttentionPlace place = attention_place<Tile::kOwn>(cut, gridDim.x - 1 - blockIdx.x, group.value);
  if (place.rows == 0) return;

  Half* queries = dynamic_shared<Half>();
  Half* d_out = queries + Tile::kOwnHalves;
  Half* keys = d_out + Tile::kOwnHalves;
  Half* values = keys + 2 * Tile::kOtherHalves;
  const auto token_of = [&](int row) { return place.token_of(row, group); };
  const auto head_of = [&](int row) { return kv_head * group.value + place.head_of(row, group); };
  const auto row_of = [&](const auto& x) {
    return [&](int row) { return (place.first_token + token_of(row)) * x.row_stride + head_of(row) * x.head_stride; };
  };
  const auto fetch_keys = [&](int tile, int end, int buffer) {
    const auto key_of = [&](const auto& x) {
      return [&](int i) { return (place.first_token + tile + i) * x.row_stride + kv_head * x.head_stride; };
    };
    const int count = min(kKeys, end - tile);
    fetch_rows<kDim, kKeys>(keys + buffer * Tile::kOtherHalves, p.k.data, count, width, key_of(p.k));
    fetch_rows<kDim, kKeys>(values + buffer * Tile::kOtherHalves, p.v.data, count, width, key_of(p.v));
    cp_async_commit();
  };

  const KeyRange first = keys_of(z, place, token_of(0)), last = keys_of(z, place, token_of(place.rows - 1));
  const int lane = threadIdx.x % kWarp, warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  int tile = first.begin / kKeys * kKeys, buffer = 0;
  fetch_rows<kDim, Tile::kOwn>(queries, p.q.data, place.rows, width, row_of(p.q));
  fetch_rows<kDim, Tile::kOwn>(d_out, p.d_out.data, place.rows, width, row_of(p.d_out));
  fetch_keys(tile, last.end, 0);

  int seen_end[2];
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(warp_row + 8 * half + lane / 4, place.rows - 1);
    const int64_t at = head_of(row) * z.tokens + place.first_token + token_of(row);
    seen_end[half] = keys_of(z, place, token_of(row)).end;
    lse[half] = p.lse[at] * kLog2e;
    delta[half] = p.delta[at];
  }
  Fragments<1, kDim> dq;
  clear<kDim>(dq);
  const float scale = z.scale * kLog2e;
  const int window = z.window > 0 ? static_cast<int>(z.window) : INT_MAX;
  for (; tile < last.end; tile += kKeys, buffer ^= 1) {
    if (tile + kKeys < last.end) {
      fetch_keys(tile + kKeys, last.end, buffer ^ 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    Fragments<1, kKeys> scores, d_scores;
    multiply_tiles<kDim, 1, kKeys>(scores, queries, warp_row, keys + buffer * Tile::kOtherHalves);
    multiply_tiles<kDim, 1, kKeys>(d_scores, d_out, warp_row, values + buffer * Tile::kOtherHalves);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int to = seen_end[half] - tile, from = max(0, seen_end[half] - window) - tile;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = 8 * n + lane % 4 * 2 + i;
          const float weight = exp2f(scores[0][n][2 * half + i] * scale - lse[half]);
          float& d = d_scores[0][n][2 * half + i];
          d = key >= from && key < to ? weight * (d - delta[half]) : 0;
        }
      }
    }
    add_weighted_tile<kDim, 1, kKeys, kDim>(dq, d_scores, keys + buffer * Tile::kOtherHalves, 0);
    __syncthreads();  // the buffer is filled anew
  }
  store_tile<kDim, 1, kDim>(
      dq, queries, warp_row, width, [&](int, int) { return z.scale; },
      [&](int row) -> Half* { return row < place.rows ? p.dq.data + row_of(p.dq)(row) : nullptr; });
}

template <int kDim>
__global__ void __launch_bounds__(kTensorThreads) key_gradients(CudaAttentionBackward<Half> p, AttentionCut cut) {
  using Tile = BackwardTile<kDim>;
  constexpr int kRows = Tile::kOther, kColumns = Tile::kColumns;
  KEEL_SHARED(float, softmax, [2][2][kRows]);
  const CudaAttentionSizes& z = cut.sizes;
  const Divisor& group = cut.group;
  const int64_t kv_head = blockIdx.y;
  const int width = static_cast<int>(z.head_dim);
  const AttentionPlace place = attention_place<Tile::kOwn>(cut, blockIdx.x, 1);
  if (place.rows == 0) return;

  Half* keys = dynamic_shared<Half>();
  Half* values = keys + Tile::kOwnHalves;
  Half* queries = values + Tile::kOwnHalves;
  Half* d_out = queries + 2 * Tile::kOtherHalves;
  const auto key_of = [&](const auto& x) {
    return [&](int i) { return (place.first_token + place.first_row + i) * x.row_stride + kv_head * x.head_stride; };
  };
  const auto fetch_queries = [&](int tile, int end, int buffer) {
    const auto row_of = [&](const auto& x) {
      return [&](int row) {
        const int token = group.quotient(tile + row), head = tile + row - token * group.value;
        return (place.first_token + token) * x.row_stride + (kv_head * group.value + head) * x.head_stride;
      };
    };
    const int count = min(kRows, end - tile);
    fetch_rows<kDim, kRows>(queries + buffer * Tile::kOtherHalves, p.q.data, count, width, row_of(p.q));
    fetch_rows<kDim, kRows>(d_out + buffer * Tile::kOtherHalves, p.d_out.data, count, width, row_of(p.d_out));
    cp_async_commit();
    if (threadIdx.x >= kRows) return;
    const int row = tile + min(static_cast<int>(threadIdx.x), count - 1), token = group.quotient(row);
    const int64_t at = (kv_head * group.value + row - token * group.value) * z.tokens + place.first_token + token;
    softmax[buffer][0][threadIdx.x] = p.lse[at] * kLog2e;
    softmax[buffer][1][threadIdx.x] = p.delta[at];
  };

  const int reach = z.window > 0 ? static_cast<int>(min(z.window, int64_t{place.queries})) : place.queries;
  const auto end_of = [&](int key) { return min(key + reach, place.queries) * group.value; };
  const int end = end_of(place.first_row + place.rows - 1);
  const int lane = threadIdx.x % kWarp, warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  int tile = place.first_row * group.value / kRows * kRows, buffer = 0;
  fetch_rows<kDim, Tile::kOwn>(keys, p.k.data, place.rows, width, key_of(p.k));
  fetch_rows<kDim, Tile::kOwn>(values, p.v.data, place.rows, width, key_of(p.v));
  fetch_queries(tile, end, 0);

  const int first_column = blockIdx.z * kColumns;
  Fragments<1, kColumns> dk, dv;
  clear<kColumns>(dk);
  clear<kColumns>(dv);
  const float scale = z.scale * kLog2e;
  for (; tile < end; tile += kRows, buffer ^= 1) {
    if (tile + kRows < end) {
      fetch_queries(tile + kRows, end, buffer ^ 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    const Half* tile_q = queries + buffer * Tile::kOtherHalves;
    const Half* tile_d_out = d_out + buffer * Tile::kOtherHalves;
    Fragments<1, kRows> scores, d_scores;
    multiply_tiles<kDim, 1, kRows>(scores, keys, warp_row, tile_q);
    multiply_tiles<kDim, 1, kRows>(d_scores, values, warp_row, tile_d_out);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = min(place.first_row + warp_row + 8 * half + lane / 4, place.queries);
      const int from = key * group.value - tile, to = min(end_of(key), end) - tile;
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = 8 * n + lane % 4 * 2 + i;
          const bool is_seen = row >= from && row < to;
          float& weight = scores[0][n][2 * half + i];
          float& d = d_scores[0][n][2 * half + i];
          weight = is_seen ? exp2f(weight * scale - softmax[buffer][0][row]) : 0;
          d = is_seen ? weight * (d - softmax[buffer][1][row]) : 0;
        }
      }
    }
    add_weighted_tile<kDim, 1, kRows, kColumns>(dv, scores, tile_d_out, first_column);
    add_weighted_tile<kDim, 1, kRows, kColumns>(dk, d_scores, tile_q, first_column);
    __syncthreads();  // the buffer is filled anew
  }
  const auto to = [&](const auto& x) {
    return [&, x](int row) -> Half* { return row < place.rows ? x.data + key_of(x)(row) + first_column : nullptr; };
  };
  store_tile<kDim, 1, kColumns>(
      dk, keys, warp_row, width - first_column, [&](int, int) { return z.scale; }, to(p.dk));
  store_tile<kDim, 1, kColumns>(
      dv, values, warp_row, width - first_column, [&](int, int) { return 1.0F; }, to(p.dv));
}

/// False, and nothing is done, where the GPU's blocks may not have as much shared memory.
template <int kDim>
bool run(CudaQueue& queue, const CudaAttentionBackward<Half>& p) {
  using Tile = BackwardTile<kDim>;
  constexpr int64_t kSoftmaxBytes = 4 * Tile::kOther * sizeof(float);
  if (queue.shared_bytes < static_cast<int64_t>(Tile::kBytes) + kSoftmaxBytes) return false;
  const CudaAttentionSizes& z = p.sizes;
  const AttentionCut cut = attention_cut(z, {});
  attention_delta(queue, p);
  const auto kv_heads = static_cast<unsigned>(z.kv_heads);
  launch(queue, query_gradients<kDim>,
         dim3(static_cast<unsigned>(attention_blocks(z, z.heads / z.kv_heads, Tile::kOwn)), kv_heads), kTensorThreads,
         Tile::kBytes, p, cut);
  launch(queue, key_gradients<kDim>,
         dim3(static_cast<unsigned>(attention_blocks(z, 1, Tile::kOwn)), kv_heads, kDim / Tile::kColumns),
         kTensorThreads, Tile::kBytes, p, cut);
  return true;
}

bool run_on_tensor_cores(CudaQueue& queue, const CudaAttentionBackward<Half>& p) {
  const bool is_aligned = has_eights(p.d_out) && has_eights(p.q) && has_eights(p.k) && has_eights(p.v) &&
                          has_eights(p.dq) && has_eights(p.dk) && has_eights(p.dv);
  if (!is_aligned) return false;
  return with_tile_columns(p.sizes.head_dim, [&](auto columns) { return run<columns.value>(queue, p); });
}

}  // namespace

void keel_cuda_attention_backward_bf16(CudaQueue& queue, const CudaAttentionBackward<Bf16>& given) {
  const CudaAttentionBackward<Half> p{given.sizes,      halves(given.d_out), halves(given.q),  halves(given.k),
                                      halves(given.v),  halves(given.out),   halves(given.dq), halves(given.dk),
                                      halves(given.dv), given.lse,           given.delta};
  if (p.sizes.sequences == 0 || p.sizes.tokens == 0) return;
  if (run_on_tensor_cores(queue, p)) return;
  attention_backward_in_fp32(queue, p);
}

}  // namespace keel
