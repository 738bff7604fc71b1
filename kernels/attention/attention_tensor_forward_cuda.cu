// Attention forward in bf16 on tensor cores. Dao 2023, arXiv:2307.08691, with rows of all query heads of a kv head together.

#include <climits>

#include "keel/kernels/attention/attention_fp32.cuh"
#include "keel/kernels/attention/attention_tensor.cuh"

namespace keel {
namespace {

template <int kDim>
struct ForwardTile {
  static constexpr int kM = kDim <= 128 ? 2 : 1;  ///< 16 rows of queries of a warp each
  static constexpr int kRows = 16 * kM * kTensorWarps;
  static constexpr int kKeys = kDim <= 64 ? 64 : 32;
  static constexpr int kQueryHalves = kRows * kPitch<kDim>, kKeyHalves = kKeys * kPitch<kDim>;
  /// Queries; keys and values of two tiles.
  static constexpr size_t kBytes = (kQueryHalves + 4 * kKeyHalves) * sizeof(Half);
};

/// Over the four lanes that hold a row.
__device__ inline float max_of_4(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ inline float sum_of_4(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

template <int kDim>
__global__ void __launch_bounds__(kTensorThreads, 2) attend(CudaAttentionForward<Half> p, AttentionCut cut) {
  using Tile = ForwardTile<kDim>;
  constexpr int kM = Tile::kM, kKeys = Tile::kKeys;
  const CudaAttentionSizes& z = cut.sizes;
  const Divisor& group = cut.group;
  const int64_t kv_head = blockIdx.y;
  const int width = static_cast<int>(z.head_dim);
  // Later blocks of a sequence see more keys: they begin first.
  const AttentionPlace place = attention_place<Tile::kRows>(cut, gridDim.x - 1 - blockIdx.x, group.value);
  if (place.rows == 0) return;
  if (p.pages.page_table != nullptr && place.queries * group.value <= kFewRows) return;

  Half* queries = dynamic_shared<Half>();
  Half* keys = queries + Tile::kQueryHalves;
  Half* values = keys + 2 * Tile::kKeyHalves;
  const auto token_of = [&](int row) { return place.token_of(row, group); };
  const auto head_of = [&](int row) { return kv_head * group.value + place.head_of(row, group); };
  const auto fetch_keys = [&](int tile, int end, int buffer) {
    const auto at = [&](int64_t stride, int64_t head_stride) {
      return [&place, &cut, tile, stride, head = kv_head * head_stride](int i) {
        return key_row(cut, place, tile + i) * stride + head;
      };
    };
    const int count = min(kKeys, end - tile);
    fetch_rows<kDim, kKeys>(keys + buffer * Tile::kKeyHalves, p.k.data, count, width,
                            at(p.k.row_stride, p.k.head_stride));
    fetch_rows<kDim, kKeys>(values + buffer * Tile::kKeyHalves, p.v.data, count, width,
                            at(p.v.row_stride, p.v.head_stride));
    cp_async_commit();
  };

  const KeyRange first = keys_of(z, place, token_of(0)), last = keys_of(z, place, token_of(place.rows - 1));
  const int lane = threadIdx.x % kWarp, warp_row = static_cast<int>(threadIdx.x) / kWarp * 16 * kM;
  int tile = first.begin / kKeys * kKeys, buffer = 0;
  fetch_rows<kDim, Tile::kRows>(queries, p.q.data, place.rows, width, [&](int row) {
    return (place.first_token + token_of(row)) * p.q.row_stride + head_of(row) * p.q.head_stride;
  });
  fetch_keys(tile, last.end, 0);

  int seen_end[kM][2];
  float largest[kM][2], sum[kM][2];
  Fragments<kM, kDim> out;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      seen_end[m][half] = keys_of(z, place, token_of(min(warp_row + 16 * m + 8 * half + lane / 4, place.rows - 1))).end;
      largest[m][half] = -INFINITY;
      sum[m][half] = 0;
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[m][n][i] = 0;
    }
  }
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
    Fragments<kM, kKeys> scores;
    multiply_tiles<kDim, kM, kKeys>(scores, queries, warp_row, keys + buffer * Tile::kKeyHalves);
    const bool all = tile >= last.begin && tile + kKeys <= first.end;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int to = seen_end[m][half] - tile, from = max(0, seen_end[m][half] - window) - tile;
        float highest = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int key = 8 * n + lane % 4 * 2 + i;
            float& score = scores[m][n][2 * half + i];
            score = all || (key >= from && key < to) ? score * scale : -INFINITY;
            highest = fmaxf(highest, score);
          }
        }
        highest = fmaxf(largest[m][half], max_of_4(highest));
        const float base = highest == -INFINITY ? 0 : highest;  // no key of those so far is seen
        const float factor = exp2f(largest[m][half] - base);
        largest[m][half] = highest;
        float of_tile = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          float& low = scores[m][n][2 * half];
          float& high = scores[m][n][2 * half + 1];
          low = exp2f(low - base);
          high = exp2f(high - base);
          of_tile += low + high;
        }
        sum[m][half] = sum[m][half] * factor + of_tile;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          out[m][n][2 * half] *= factor;
          out[m][n][2 * half + 1] *= factor;
        }
      }
    }
    add_weighted_tile<kDim, kM, kKeys, kDim>(out, scores, values + buffer * Tile::kKeyHalves, 0);
    __syncthreads();  // the buffer is filled anew
  }

#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + 16 * m + 8 * half + lane / 4;
      sum[m][half] = sum_of_4(sum[m][half]);
      if (p.lse == nullptr || row >= place.rows || lane % 4 != 0) continue;
      p.lse[head_of(row) * z.tokens + place.first_token + token_of(row)] =
          (largest[m][half] + log2f(sum[m][half])) * kLn2;
    }
  }
  store_tile<kDim, kM, kDim>(
      out, queries, warp_row, width, [&](int m, int half) { return 1 / sum[m][half]; },
      [&](int row) -> Half* {
        if (row >= place.rows) return nullptr;
        return p.out.data + (place.first_token + token_of(row)) * p.out.row_stride + head_of(row) * p.out.head_stride;
      });
}

/// False, and nothing is done, where the GPU's blocks may not have as much shared memory.
template <int kDim>
bool run(CudaQueue& queue, const CudaAttentionForward<Half>& p) {
  using Tile = ForwardTile<kDim>;
  if (queue.shared_bytes < static_cast<int64_t>(Tile::kBytes)) return false;
  const CudaAttentionSizes& z = p.sizes;
  if (p.pages.page_table != nullptr) attention_in_fp32(queue, p, true);
  launch(queue, attend<kDim>,
         dim3(static_cast<unsigned>(attention_blocks(z, z.heads / z.kv_heads, Tile::kRows)),
              static_cast<unsigned>(z.kv_heads)),
         kTensorThreads, Tile::kBytes, p, attention_cut(z, p.pages));
  return true;
}

bool run_on_tensor_cores(CudaQueue& queue, const CudaAttentionForward<Half>& p) {
  const bool is_aligned = has_eights(p.q) && has_eights(p.k) && has_eights(p.v) && has_eights(p.out);
  if (!is_aligned) return false;
  return with_tile_columns(p.sizes.head_dim, [&](auto columns) { return run<columns.value>(queue, p); });
}

}  // namespace

void keel_cuda_attention_forward_bf16(CudaQueue& queue, const CudaAttentionForward<Bf16>& given) {
  const CudaAttentionForward<Half> p{given.sizes,       halves(given.q), halves(given.k), halves(given.v),
                                     halves(given.out), given.lse,       given.pages};
  if (p.sizes.sequences == 0 || p.sizes.tokens == 0) return;
  if (run_on_tensor_cores(queue, p)) return;
  attention_in_fp32(queue, p, false);
}

}  // namespace keel
