// Attention backward in fp32 arithmetic: for every type and head_dim. Blocks own rows of queries for dq, keys for dk and dv,
// and add up in the order of the tiles.

#include "keel/kernels/attention/attention_device.cuh"
#include "keel/kernels/attention/attention_fp32.cuh"

namespace keel {
namespace {

constexpr int kRows = 4, kTileRows = 16 * kRows;
constexpr int kDeltaThreads = 128;

/// delta[h,n] = d_out . out, a warp for each.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads)
    row_products(CudaHeadRows<const T> d_out, CudaHeadRows<const T> out, CudaAttentionSizes z, bool vectors,
                 float* __restrict__ delta) {
  const int lane = threadIdx.x % kWarp;
  const int64_t index = blockIdx.x * int64_t{kDeltaThreads / kWarp} + threadIdx.x / kWarp;
  const int64_t n = index / z.heads, head = index % z.heads;
  if (n < z.cu_seqlens[0] || n >= z.cu_seqlens[z.sequences]) return;
  const T* a = d_out.data + n * d_out.row_stride + head * d_out.head_stride;
  const T* b = out.data + n * out.row_stride + head * out.head_stride;
  const int columns = static_cast<int>(z.head_dim);
  float sum = 0;
  for (int column = 4 * lane; column < columns; column += 4 * kWarp) {
    const float4 x = load4_within(a, column, columns, vectors), y = load4_within(b, column, columns, vectors);
    sum = fmaf(x.x, y.x, sum);
    sum = fmaf(x.y, y.y, sum);
    sum = fmaf(x.z, y.z, sum);
    sum = fmaf(x.w, y.w, sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) delta[head * z.tokens + n] = sum;
}

/// Queries of a tile: where they, their d_out and their softmax begin.
struct QueryRows {
  int64_t *q_at, *d_out_at;  ///< [kTileRows], shared
  float *lse, *delta;        ///< the same
};

/// Fills them for `count` rows of a kv head from row `first` of a sequence on.
template <class T>
__device__ inline void load_query_rows(const CudaAttentionBackward<T>& p, int64_t first_token, int first, int count,
                                       const Divisor& group, int64_t kv_head, const QueryRows& to) {
  const int r = threadIdx.x;
  if (r >= kTileRows) return;
  const int row = first + min(r, count - 1), of_sequence = group.quotient(row);
  const int64_t token = first_token + of_sequence, head = kv_head * group.value + row - of_sequence * group.value;
  to.q_at[r] = token * p.q.row_stride + head * p.q.head_stride;
  to.d_out_at[r] = token * p.d_out.row_stride + head * p.d_out.head_stride;
  to.lse[r] = p.lse[head * p.sizes.tokens + token];
  to.delta[r] = p.delta[head * p.sizes.tokens + token];
}

template <class T>
__device__ inline void load_key_rows(const CudaAttentionBackward<T>& p, int64_t first_row, int count, int64_t kv_head,
                                     int64_t* k_at, int64_t* v_at) {
  if (static_cast<int>(threadIdx.x) >= count) return;
  const int64_t row = first_row + threadIdx.x;
  k_at[threadIdx.x] = row * p.k.row_stride + kv_head * p.k.head_stride;
  v_at[threadIdx.x] = row * p.v.row_stride + kv_head * p.v.head_stride;
}

/// dq of a tile of rows of a kv head, kColumns of its columns.
template <class T, int kColumns>
__global__ void __launch_bounds__(kTileThreads, kColumns <= 64 ? 2 : 1)
    query_gradients(CudaAttentionBackward<T> p, AttentionCut cut, bool vectors) {
  KEEL_SHARED(float4, panel_memory, [kPanelFloats<kRows> / 4]);
  KEEL_SHARED(float4, weights_memory, [kTileKeys * kTileStride<kRows> / 4]);
  KEEL_SHARED(int64_t, offsets, [4][kTileRows]);
  KEEL_SHARED(float, softmax, [2][kTileRows]);
  float* panel = reinterpret_cast<float*>(panel_memory);
  float* weights = reinterpret_cast<float*>(weights_memory);
  const CudaAttentionSizes& z = cut.sizes;
  const Divisor& group = cut.group;
  const int head_dim = static_cast<int>(z.head_dim);
  const int64_t kv_head = blockIdx.y;
  const AttentionPlace place = attention_place<kTileRows>(cut, gridDim.x - 1 - blockIdx.x, group.value);
  if (place.rows == 0) return;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const QueryRows queries{offsets[0], offsets[1], softmax[0], softmax[1]};
  int64_t *k_at = offsets[2], *v_at = offsets[3];
  load_query_rows(p, place.first_token, place.first_row, place.rows, group, kv_head, queries);
  const KeyRange first = keys_of(z, place, place.token_of(0, group));
  const KeyRange last = keys_of(z, place, place.token_of(place.rows - 1, group));
  KeyRange seen[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = min(kRows * ty + i, place.rows - 1);
    seen[i] = keys_of(z, place, place.token_of(row, group));
  }
  const int first_column = blockIdx.z * kColumns;
  float dq[kRows][kColumns / 16] = {};
  for (int tile = first.begin / kTileKeys * kTileKeys; tile < last.end; tile += kTileKeys) {
    const int count = min(kTileKeys, last.end - tile);
    __syncthreads();  // the tile before may still be in use
    load_key_rows(p, place.first_token + tile, count, kv_head, k_at, v_at);
    __syncthreads();
    float scores[kRows][4], d_weights[kRows][4];
    multiply_rows(scores, TileRows<T>{p.q.data, queries.q_at, place.rows}, TileRows<T>{p.k.data, k_at, count}, head_dim,
                  vectors, panel);
    multiply_rows(d_weights, TileRows<T>{p.d_out.data, queries.d_out_at, place.rows},
                  TileRows<T>{p.v.data, v_at, count}, head_dim, vectors, panel);
    int from[kRows], to[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      from[i] = seen[i].begin - tile;
      to[i] = min(seen[i].end - tile, count);
      const float lse = queries.lse[kRows * ty + i], delta = queries.delta[kRows * ty + i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int key = 4 * tx + j;
        const float ds = expf(scores[i][j] * z.scale - lse) * (d_weights[i][j] - delta);
        weights[key * kTileStride<kRows> + kRows * ty + i] = key >= from[i] && key < to[i] ? ds : 0;
      }
    }
    const bool all = tile >= last.begin && tile + count <= first.end;
    add_weighted_rows<kRows, kColumns>(dq, weights, TileRows<T>{p.k.data, k_at, count}, first_column, head_dim, vectors,
                                       all, from, to, panel);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = kRows * ty + i;
    if (row >= place.rows) continue;
    const int64_t token = place.first_token + place.token_of(row, group);
    const int64_t head = kv_head * group.value + place.head_of(row, group);
    T* to = p.dq.data + token * p.dq.row_stride + head * p.dq.head_stride;
#pragma unroll
    for (int c = 0; c < kColumns / 64; ++c) {
      store4_within(to, first_column + 64 * c + 4 * tx, head_dim, vectors,
                    make_float4(dq[i][4 * c] * z.scale, dq[i][4 * c + 1] * z.scale, dq[i][4 * c + 2] * z.scale,
                                dq[i][4 * c + 3] * z.scale));
    }
  }
}

/// dk and dv of a tile of keys of a kv head, kColumns of their columns.
template <class T, int kColumns>
__global__ void __launch_bounds__(kTileThreads, kColumns <= 64 ? 2 : 1)
    key_gradients(CudaAttentionBackward<T> p, AttentionCut cut, bool vectors) {
  static_assert(kTileRows == kTileKeys);
  KEEL_SHARED(float4, panel_memory, [kPanelFloats<kRows> / 4]);
  KEEL_SHARED(float4, weights_memory, [kTileRows * kTileStride<kRows> / 4]);
  KEEL_SHARED(int64_t, offsets, [4][kTileRows]);
  KEEL_SHARED(float, softmax, [2][kTileRows]);
  float* panel = reinterpret_cast<float*>(panel_memory);
  float* weights = reinterpret_cast<float*>(weights_memory);
  const CudaAttentionSizes& z = cut.sizes;
  const Divisor& group = cut.group;
  const int head_dim = static_cast<int>(z.head_dim);
  const int64_t kv_head = blockIdx.y;
  const AttentionPlace place = attention_place<kTileKeys>(cut, blockIdx.x, 1);
  if (place.rows == 0) return;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const QueryRows queries{offsets[0], offsets[1], softmax[0], softmax[1]};
  int64_t *k_at = offsets[2], *v_at = offsets[3];
  load_key_rows(p, place.first_token + place.first_row, place.rows, kv_head, k_at, v_at);
  // Rows of queries that see a key: from its own token on, to the end of its window.
  const int first_key = place.first_row;
  const int reach = z.window > 0 ? static_cast<int>(min(z.window, int64_t{place.queries})) : place.queries;
  const auto end_of = [&](int key) { return min(key + reach, place.queries) * group.value; };
  const int begin = first_key * group.value, end = end_of(first_key + place.rows - 1);
  const int first_column = blockIdx.z * kColumns;
  float dk[kRows][kColumns / 16] = {}, dv[kRows][kColumns / 16] = {};
  for (int tile = begin / kTileRows * kTileRows; tile < end; tile += kTileRows) {
    const int count = min(kTileRows, end - tile);
    __syncthreads();  // the tile before may still be in use
    load_query_rows(p, place.first_token, tile, count, group, kv_head, queries);
    __syncthreads();
    const TileRows<T> q{p.q.data, queries.q_at, count}, d_out{p.d_out.data, queries.d_out_at, count};
    // [i][j]: key kRows ty + i, row 4 tx + j
    float scores[kRows][4], d_weights[kRows][4];
    multiply_rows(scores, TileRows<T>{p.k.data, k_at, place.rows}, q, head_dim, vectors, panel);
    multiply_rows(d_weights, TileRows<T>{p.v.data, v_at, place.rows}, d_out, head_dim, vectors, panel);
    int from[kRows], to[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int key = min(first_key + kRows * ty + i, place.queries);
      from[i] = key * group.value - tile;
      to[i] = min(count, end_of(key) - tile);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int row = 4 * tx + j;
        const bool is_seen = row >= from[i] && row < to[i];
        scores[i][j] = is_seen ? expf(scores[i][j] * z.scale - queries.lse[row]) : 0;
        d_weights[i][j] = is_seen ? scores[i][j] * (d_weights[i][j] - queries.delta[row]) : 0;
        weights[row * kTileStride<kRows> + kRows * ty + i] = scores[i][j];
      }
    }
    const bool all = tile >= (first_key + place.rows - 1) * group.value && tile + count <= end_of(first_key);
    add_weighted_rows<kRows, kColumns>(dv, weights, d_out, first_column, head_dim, vectors, all, from, to, panel);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) weights[(4 * tx + j) * kTileStride<kRows> + kRows * ty + i] = d_weights[i][j];
    }
    add_weighted_rows<kRows, kColumns>(dk, weights, q, first_column, head_dim, vectors, all, from, to, panel);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = kRows * ty + i;
    if (row >= place.rows) continue;
    const int64_t token = place.first_token + first_key + row;
    T* to_k = p.dk.data + token * p.dk.row_stride + kv_head * p.dk.head_stride;
    T* to_v = p.dv.data + token * p.dv.row_stride + kv_head * p.dv.head_stride;
#pragma unroll
    for (int c = 0; c < kColumns / 64; ++c) {
      const int column = first_column + 64 * c + 4 * tx;
      store4_within(to_k, column, head_dim, vectors,
                    make_float4(dk[i][4 * c] * z.scale, dk[i][4 * c + 1] * z.scale, dk[i][4 * c + 2] * z.scale,
                                dk[i][4 * c + 3] * z.scale));
      store4_within(to_v, column, head_dim, vectors,
                    make_float4(dv[i][4 * c], dv[i][4 * c + 1], dv[i][4 * c + 2], dv[i][4 * c + 3]));
    }
  }
}

unsigned grid_of(int64_t blocks) {
  return static_cast<unsigned>(blocks);
}

template <class T, int kColumns>
void gradients(CudaQueue& queue, const CudaAttentionBackward<T>& p, bool vectors) {
  const CudaAttentionSizes& z = p.sizes;
  const AttentionCut cut = attention_cut(z, {});
  const unsigned kv_heads = grid_of(z.kv_heads), parts = grid_of(chunk_count(z.head_dim, kColumns));
  launch(queue, query_gradients<T, kColumns>,
         dim3(grid_of(attention_blocks(z, z.heads / z.kv_heads, kTileRows)), kv_heads, parts), kTileThreads, 0, p, cut,
         vectors);
  launch(queue, key_gradients<T, kColumns>, dim3(grid_of(attention_blocks(z, 1, kTileKeys)), kv_heads, parts),
         kTileThreads, 0, p, cut, vectors);
}

}  // namespace

template <class T>
void attention_delta(CudaQueue& queue, const CudaAttentionBackward<T>& p) {
  const CudaAttentionSizes& z = p.sizes;
  const bool vectors = has_fours(p.d_out) && has_fours(p.out);
  launch(queue, row_products<T>, dim3(grid_of(chunk_count(z.tokens * z.heads, kDeltaThreads / kWarp))), kDeltaThreads,
         0, p.d_out, p.out, z, vectors, p.delta);
}
template void attention_delta(CudaQueue&, const CudaAttentionBackward<float>&);
template void attention_delta(CudaQueue&, const CudaAttentionBackward<__nv_bfloat16>&);

template <class T>
void attention_backward_in_fp32(CudaQueue& queue, const CudaAttentionBackward<T>& p) {
  const CudaAttentionSizes& z = p.sizes;
  if (z.sequences == 0 || z.tokens == 0) return;
  attention_delta(queue, p);
  const bool vectors = has_fours(p.d_out) && has_fours(p.q) && has_fours(p.k) && has_fours(p.v) && has_fours(p.dq) &&
                       has_fours(p.dk) && has_fours(p.dv);
  if (z.head_dim <= 64) return gradients<T, 64>(queue, p, vectors);
  gradients<T, 128>(queue, p, vectors);
}
template void attention_backward_in_fp32(CudaQueue&, const CudaAttentionBackward<float>&);
template void attention_backward_in_fp32(CudaQueue&, const CudaAttentionBackward<__nv_bfloat16>&);

void keel_cuda_attention_backward(CudaQueue& queue, const CudaAttentionBackward<float>& p) {
  attention_backward_in_fp32(queue, p);
}

}  // namespace keel
