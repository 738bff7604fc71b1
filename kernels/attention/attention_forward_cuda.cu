// Attention forward in fp32 arithmetic: for every type and head_dim.

#include <climits>

#include "keel/base/error.h"
#include "keel/kernels/attention/attention_device.cuh"
#include "keel/kernels/attention/attention_fp32.cuh"

namespace keel {
namespace {

constexpr int kCombineThreads = 128;

/// Where a span ends depends on the number of keys alone.
__device__ inline int span_of(int keys) {
  const int wanted = (keys + kCudaKeySplits - 1) / kCudaKeySplits;
  return max(kCudaLeastSpan, (wanted + kTileKeys - 1) / kTileKeys * kTileKeys);
}

/// What few rows leave of each span of keys: sums of p v, [sequences, kv_heads, splits, kFewRows, head_dim], the largest
/// score and the sum of p, [.., 2].
struct Spans {
  float *sums, *scalars;
  int splits;  ///< at most, in this launch
};

__device__ inline int64_t span_at(const Spans& spans, int64_t kv_heads, int64_t sequence, int64_t kv_head, int split) {
  return ((sequence * kv_heads + kv_head) * spans.splits + split) * kFewRows;
}

/// Over 16 neighbouring lanes.
__device__ inline float max_of_16(float x) {
  for (int lanes = 8; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  return x;
}
__device__ inline float sum_of_16(float x) {
  for (int lanes = 8; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}

/// A block takes 16 kRows rows of queries of a kv head and kColumns columns of what they give; with kSplit, a span of
/// their keys only.
template <class T, int kRows, int kColumns, bool kSplit>
__global__ void __launch_bounds__(kTileThreads, kColumns <= 128 || kSplit ? 2 : 1)
    attend(CudaAttentionForward<T> p, AttentionCut cut, bool vectors, Spans spans) {
  constexpr int kTileRows = 16 * kRows;
  KEEL_SHARED(float4, panel_memory, [kPanelFloats<kRows> / 4]);
  KEEL_SHARED(float4, weights_memory, [kTileKeys * kTileStride<kRows> / 4]);
  KEEL_SHARED(int64_t, query_at, [kTileRows]);
  KEEL_SHARED(int64_t, key_at, [kTileKeys]);
  KEEL_SHARED(int64_t, value_at, [kTileKeys]);
  float* panel = reinterpret_cast<float*>(panel_memory);
  float* weights = reinterpret_cast<float*>(weights_memory);
  const CudaAttentionSizes& z = cut.sizes;
  const Divisor& group = cut.group;
  const int head_dim = static_cast<int>(z.head_dim);
  const int64_t kv_head = blockIdx.y;
  // Later blocks of a sequence see more keys: they begin first.
  const int64_t number = kSplit ? blockIdx.x / spans.splits : gridDim.x - 1 - blockIdx.x;
  AttentionPlace place;
  if constexpr (kSplit) {
    place = {.sequence = number, .first_row = 0, .rows = 0, .queries = 0, .keys = 0, .first_token = 0};
    place.first_token = z.cu_seqlens[number];
    place.queries = static_cast<int>(z.cu_seqlens[number + 1] - place.first_token);
    place.keys = p.pages.kv_lengths[number];
    place.rows = place.queries * group.value <= kFewRows ? place.queries * group.value : 0;
  } else {
    place = attention_place<kTileRows>(cut, number, group.value);
    if (p.pages.page_table != nullptr && place.queries * group.value <= kFewRows) return;
  }
  if (place.rows == 0) return;

  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int first_token = place.token_of(0, group), last_token = place.token_of(place.rows - 1, group);
  if (threadIdx.x < kTileRows) {
    const int row = min(static_cast<int>(threadIdx.x), place.rows - 1);
    query_at[threadIdx.x] = (place.first_token + place.token_of(row, group)) * p.q.row_stride +
                            (kv_head * group.value + place.head_of(row, group)) * p.q.head_stride;
  }
  KeyRange seen[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = min(kRows * ty + i, place.rows - 1);
    seen[i] = keys_of(z, place, place.token_of(row, group));
  }
  int begin = keys_of(z, place, first_token).begin, end = keys_of(z, place, last_token).end;
  const int split = kSplit ? blockIdx.x % spans.splits : 0;
  if constexpr (kSplit) {
    const int span = span_of(place.keys);
    begin = max(begin, split * span);
    end = min(end, (split + 1) * span);
  }

  float largest[kRows], sum[kRows], out[kRows][kColumns / 16] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    largest[i] = -INFINITY;
    sum[i] = 0;
  }
  const int first_column = blockIdx.z * kColumns;
  for (int tile = begin / kTileKeys * kTileKeys; tile < end; tile += kTileKeys) {
    const int count = min(kTileKeys, end - tile);
    __syncthreads();  // the tile before may still be in use
    if (static_cast<int>(threadIdx.x) < count) {
      const int64_t row = key_row(cut, place, tile + static_cast<int>(threadIdx.x));
      key_at[threadIdx.x] = row * p.k.row_stride + kv_head * p.k.head_stride;
      value_at[threadIdx.x] = row * p.v.row_stride + kv_head * p.v.head_stride;
    }
    __syncthreads();
    float scores[kRows][4];
    multiply_rows(scores, TileRows<T>{p.q.data, query_at, place.rows}, TileRows<T>{p.k.data, key_at, count}, head_dim,
                  vectors, panel);
    int from[kRows], to[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      from[i] = seen[i].begin - tile;
      to[i] = min(seen[i].end - tile, count);
      float highest = largest[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int key = 4 * tx + j;
        scores[i][j] = key >= from[i] && key < to[i] ? scores[i][j] * z.scale : -INFINITY;
        highest = fmaxf(highest, scores[i][j]);
      }
      highest = max_of_16(highest);
      const float base = highest == -INFINITY ? 0 : highest;  // no key of those so far is seen
      const float factor = expf(largest[i] - base);
      largest[i] = highest;
      float of_tile = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[i][j] = expf(scores[i][j] - base);
        of_tile += scores[i][j];
      }
      sum[i] = sum[i] * factor + sum_of_16(of_tile);
#pragma unroll
      for (int c = 0; c < kColumns / 16; ++c) out[i][c] *= factor;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) weights[(4 * tx + j) * kTileStride<kRows> + kRows * ty + i] = scores[i][j];
    }
    const bool all = tile >= keys_of(z, place, last_token).begin && tile + count <= keys_of(z, place, first_token).end;
    add_weighted_rows<kRows, kColumns>(out, weights, TileRows<T>{p.v.data, value_at, count}, first_column, head_dim,
                                       vectors, all, from, to, panel);
  }

#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = kRows * ty + i;
    if (row >= place.rows) continue;
    const int64_t token = place.first_token + place.token_of(row, group);
    const int64_t head = kv_head * group.value + place.head_of(row, group);
    if constexpr (kSplit) {
      const int64_t at = span_at(spans, z.kv_heads, place.sequence, kv_head, split) + row;
      if (tx == 0 && blockIdx.z == 0) {
        spans.scalars[2 * at] = largest[i];
        spans.scalars[2 * at + 1] = sum[i];
      }
#pragma unroll
      for (int c = 0; c < kColumns / 64; ++c) {
        store4_within(spans.sums + at * head_dim, first_column + 64 * c + 4 * tx, head_dim, head_dim % 4 == 0,
                      make_float4(out[i][4 * c], out[i][4 * c + 1], out[i][4 * c + 2], out[i][4 * c + 3]));
      }
    } else {
      if (p.lse != nullptr && tx == 0 && blockIdx.z == 0) p.lse[head * z.tokens + token] = largest[i] + logf(sum[i]);
      const float factor = 1 / sum[i];
      T* to = p.out.data + token * p.out.row_stride + head * p.out.head_stride;
#pragma unroll
      for (int c = 0; c < kColumns / 64; ++c) {
        store4_within(to, first_column + 64 * c + 4 * tx, head_dim, vectors,
                      make_float4(out[i][4 * c] * factor, out[i][4 * c + 1] * factor, out[i][4 * c + 2] * factor,
                                  out[i][4 * c + 3] * factor));
      }
    }
  }
}

/// Adds up the spans of a row of queries, in their order.
template <class T>
__global__ void __launch_bounds__(kCombineThreads) combine_spans(CudaAttentionForward<T> p, Spans spans) {
  const CudaAttentionSizes& z = p.sizes;
  const int group = static_cast<int>(z.heads / z.kv_heads), head_dim = static_cast<int>(z.head_dim);
  const int64_t sequence = blockIdx.x / kFewRows, kv_head = blockIdx.y;
  const int row = blockIdx.x % kFewRows;
  const int64_t first_token = z.cu_seqlens[sequence];
  const int64_t rows = (z.cu_seqlens[sequence + 1] - first_token) * group;
  if (rows > kFewRows || row >= rows) return;
  const int keys = p.pages.kv_lengths[sequence], span = span_of(keys);
  const int count = min(spans.splits, (keys + span - 1) / span);
  const int64_t at = span_at(spans, z.kv_heads, sequence, kv_head, 0) + row;
  const auto scalars_of = [&](int split) { return spans.scalars + 2 * (at + int64_t{split} * kFewRows); };
  float largest = -INFINITY, sum = 0;
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, scalars_of(i)[0]);
  const float base = largest == -INFINITY ? 0 : largest;
  for (int i = 0; i < count; ++i) sum += expf(scalars_of(i)[0] - base) * scalars_of(i)[1];
  const int64_t token = first_token + row / group, head = kv_head * group + row % group;
  if (p.lse != nullptr && threadIdx.x == 0) p.lse[head * z.tokens + token] = largest + logf(sum);
  for (int column = threadIdx.x; column < head_dim; column += kCombineThreads) {
    float total = 0;
    for (int i = 0; i < count; ++i) {
      total += expf(scalars_of(i)[0] - base) * spans.sums[(at + int64_t{i} * kFewRows) * head_dim + column];
    }
    store1(p.out.data + token * p.out.row_stride + head * p.out.head_stride + column, total / sum);
  }
}

/// Rows of the sequences' tokens, dense.
template <class T>
__global__ void __launch_bounds__(kCombineThreads)
    copy_rows(CudaHeadRows<const T> from, CudaAttentionSizes z, T* __restrict__ to) {
  const int64_t n = blockIdx.x, head = blockIdx.y;
  if (n < z.cu_seqlens[0] || n >= z.cu_seqlens[z.sequences]) return;
  const T* row = from.data + n * from.row_stride + head * from.head_stride;
  for (int64_t c = threadIdx.x; c < z.head_dim; c += kCombineThreads)
    to[(n * z.heads + head) * z.head_dim + c] = row[c];
}

unsigned grid_of(int64_t blocks) {
  return static_cast<unsigned>(blocks);
}

/// The same of sequences [begin, end) alone.
template <class T>
CudaAttentionForward<T> of_sequences(CudaAttentionForward<T> p, int64_t begin, int64_t end) {
  p.sizes.sequences = end - begin;
  p.sizes.cu_seqlens += begin;
  p.pages.page_table += begin * p.pages.page_table_stride;
  p.pages.kv_lengths += begin;
  return p;
}

template <class T>
void attend_few(CudaQueue& queue, const CudaAttentionForward<T>& p, bool vectors, char* memory) {
  constexpr int kColumns = 256;
  const CudaAttentionSizes& z = p.sizes;
  const int splits = cuda_key_splits(p.pages.most_keys);
  const int64_t rows = z.sequences * z.kv_heads * splits * kFewRows;
  const Spans spans{reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory) + rows * z.head_dim, splits};
  launch(queue, attend<T, 1, kColumns, true>,
         dim3(grid_of(z.sequences * splits), grid_of(z.kv_heads), grid_of(chunk_count(z.head_dim, kColumns))),
         kTileThreads, 0, p, attention_cut(z, p.pages), vectors, spans);
  launch(queue, combine_spans<T>, dim3(grid_of(z.sequences * kFewRows), grid_of(z.kv_heads)), kCombineThreads, 0, p,
         spans);
}

template <class T, int kColumns>
void attend_many(CudaQueue& queue, const CudaAttentionForward<T>& p, bool vectors) {
  constexpr int kRows = 4;
  const CudaAttentionSizes& z = p.sizes;
  launch(queue, attend<T, kRows, kColumns, false>,
         dim3(grid_of(attention_blocks(z, z.heads / z.kv_heads, 16 * kRows)), grid_of(z.kv_heads),
              grid_of(chunk_count(z.head_dim, kColumns))),
         kTileThreads, 0, p, attention_cut(z, p.pages), vectors, Spans{});
}

}  // namespace

AttentionCut attention_cut(const CudaAttentionSizes& z, const CudaPages& pages) {
  constexpr int64_t kMost = INT_MAX;
  const int64_t group = z.heads / z.kv_heads;
  if (z.tokens > kMost / group) throw Error(ErrorKind::shape, "too many tokens for one batch", "attention");
  return {z, pages, Divisor(group), Divisor(std::clamp<int64_t>(pages.page_size, 1, kMost))};
}

template <class T>
void attention_in_fp32(CudaQueue& queue, const CudaAttentionForward<T>& given, bool few_only) {
  CudaAttentionForward<T> p = given;
  const CudaAttentionSizes& z = p.sizes;
  if (z.sequences == 0 || z.tokens == 0) return;
  const bool is_paged = p.pages.page_table != nullptr;
  const int64_t bytes_of_few =
      is_paged ? cuda_few_rows_bytes(z.sequences, z.kv_heads, z.head_dim, p.pages.most_keys) : 0;
  const int64_t bytes_of_q = cuda_query_copy_bytes(z.tokens, z.heads, z.head_dim, sizeof(T));
  char* memory =
      bytes_of_few + bytes_of_q > 0 ? static_cast<char*>(keel_cuda_scratch(queue, bytes_of_few + bytes_of_q)) : nullptr;
  if (bytes_of_q > 0) {
    T* copy = reinterpret_cast<T*>(memory + bytes_of_few);
    launch(queue, copy_rows<T>, dim3(grid_of(z.tokens), grid_of(z.heads)), kCombineThreads, 0, p.q, z, copy);
    p.q = {copy, z.heads * z.head_dim, z.head_dim};
  }
  const bool vectors = has_fours(p.q) && has_fours(p.k) && has_fours(p.v) && has_fours(p.out);
  for (int64_t begin = 0; is_paged && begin < z.sequences; begin += kCudaSequencesAtOnce) {
    const int64_t end = std::min(z.sequences, begin + kCudaSequencesAtOnce);
    attend_few(queue, of_sequences(p, begin, end), vectors, memory);
  }
  if (few_only) return;
  if (z.head_dim <= 64) return attend_many<T, 64>(queue, p, vectors);
  if (z.head_dim <= 128) return attend_many<T, 128>(queue, p, vectors);
  attend_many<T, kCudaMostColumns>(queue, p, vectors);
}
template void attention_in_fp32(CudaQueue&, const CudaAttentionForward<float>&, bool);
template void attention_in_fp32(CudaQueue&, const CudaAttentionForward<__nv_bfloat16>&, bool);

void keel_cuda_attention_forward(CudaQueue& queue, const CudaAttentionForward<float>& p) {
  attention_in_fp32(queue, p, false);
}

}  // namespace keel
