#include <omp.h>

#include "keel/kernels/attention/attention_blocks.h"
#include "keel/kernels/attention/attention_cpu.h"
#include "keel/kernels/attention/attention_tiles.h"

// A sequence is cut into chunks of kChunk tokens. A block of work is one chunk of keys against one chunk of queries (of
// one kv head and its query heads). Step s takes all blocks whose queries lie s chunks after their keys: they share no
// output, so they run side by side, and dq, dk, dv of every chunk grow in the order of the steps, whatever the threads.
// Rows are (token, query head of the group) pairs as in the forward pass; P and dS are kept [rows, keys].

namespace keel::KEEL_ISA {
namespace {

constexpr int64_t kChunk = 128;
constexpr int64_t kBlockRows = 64;
constexpr int64_t kScoreStride = kChunk + 16;  // an odd number of cache lines: rows spread over the cache's sets

/// Offsets in the scratch of a thread, in floats.
struct Layout {
  int64_t width;  ///< head_dim rounded up to whole vectors
  int64_t keys_transposed, values_transposed, keys, dk, dv, q, d_out, p, ds, lse, delta, token, end;

  explicit Layout(int64_t head_dim) : width(round_up(head_dim, kWidth)) {
    int64_t at = 0;
    const auto take = [&at](int64_t floats) {
      const int64_t start = at;
      at += round_up(floats, 16) + 16;
      return start;
    };
    keys_transposed = take(kChunk * head_dim);
    values_transposed = take(kChunk * head_dim);
    keys = take(kChunk * width);
    dk = take(kChunk * width);
    dv = take(kChunk * width);
    q = take(kBlockRows * width);
    d_out = take(kBlockRows * width);
    p = take(kBlockRows * kScoreStride);
    ds = take(kBlockRows * kScoreStride);
    lse = take(kBlockRows);
    delta = take(kBlockRows);
    token = take(kBlockRows);
    end = at;
  }
};

struct Range {
  int64_t begin, end;
};

/// Keys first_key ... of a sequence against queries first_token ...; positions count from the start of the sequence.
struct Block {
  const AttentionBackward& a;
  int64_t start;  ///< row of the sequence's first token
  int64_t kv_head, group;
  int64_t first_key, keys, first_token, tokens;
  bool is_first;  ///< dq, dk and dv are written, not added to
  int64_t width;
  float *keys_transposed, *values_transposed;  ///< panels [head_dim, kLanes]; keys times scale log2(e)
  float* key_rows;
  float *dk, *dv;
  // Of kBlockRows rows at a time:
  int64_t first_row, rows;
  float *q, *d_out, *p, *ds, *lse, *delta;  ///< lse in base 2
  int32_t* token;

  int64_t query(int64_t row) const { return start + first_token + (first_row + row) / group; }
  int64_t head(int64_t row) const { return kv_head * group + (first_row + row) % group; }

  /// Rows at hand that see any of the chunk's keys [begin, end).
  Range rows_seeing(int64_t begin, int64_t end) const {
    const int64_t shift = first_key - first_token;
    const int64_t first = (begin + shift) * group - first_row;
    const int64_t window = a.sizes.window;
    const int64_t last = window > 0 ? smaller(end - 1 + shift + window, tokens) * group - first_row : rows;
    return {larger(first, 0), smaller(last, rows)};
  }
  /// Keys of the chunk that any of rows [begin, end) sees.
  Range keys_seen(int64_t begin, int64_t end) const {
    const int64_t window = a.sizes.window;
    const int64_t first = window > 0 ? token[begin] - window + 1 - first_key : 0;
    return {larger(first, 0), smaller(token[end - 1] + 1 - first_key, keys)};
  }
};

void load_keys(Block& b) {
  const int64_t head_dim = b.a.sizes.head_dim;
  const int64_t first = b.start + b.first_key;
  for (int64_t j = 0; j < b.keys; j += kLanes) {
    const int64_t count = smaller(kLanes, b.keys - j);
    const auto key = [&](int64_t i) { return b.a.k(first + j + i, b.kv_head); };
    const auto value = [&](int64_t i) { return b.a.v(first + j + i, b.kv_head); };
    transpose_rows(key, count, head_dim, b.a.sizes.scale * kLog2e, b.keys_transposed + j * head_dim);
    transpose_rows(value, count, head_dim, 1.0F, b.values_transposed + j * head_dim);
  }
  for (int64_t j = 0; j < b.keys; ++j) copy_row(b.a.k(first + j, b.kv_head), head_dim, b.key_rows + j * b.width);
  for (int64_t i = 0; i < kChunk * b.width; i += kWidth) {
    store(b.dk + i, Vector{});
    store(b.dv + i, Vector{});
  }
}

float dot(const float* x, const float* y, int64_t n) {
  Vector sum{};
  for (int64_t d = 0; d < n; d += kWidth) sum += load_first(x + d, n - d) * load_first(y + d, n - d);
  float total = 0;
  for (int i = 0; i < kWidth; ++i) total += sum[i];
  return total;
}

void load_rows(Block& b, int64_t first_row, int64_t rows) {
  b.first_row = first_row;
  b.rows = rows;
  const int64_t head_dim = b.a.sizes.head_dim;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t n = b.query(r), h = b.head(r);
    copy_row(b.a.q(n, h), head_dim, b.q + r * b.width);
    copy_row(b.a.d_out(n, h), head_dim, b.d_out + r * b.width);
    float* delta = b.a.delta + h * b.a.sizes.tokens + n;
    if (b.is_first) *delta = dot(b.d_out + r * b.width, b.a.out(n, h), head_dim);
    b.delta[r] = *delta;
    b.lse[r] = b.a.lse[h * b.a.sizes.tokens + n] * kLog2e;
    b.token[r] = static_cast<int32_t>(n - b.start);
  }
  for (int64_t r = rows; r < round_up(rows, kTileRows); ++r) {
    for (int64_t d = 0; d < b.width; d += kWidth) {
      store(b.q + r * b.width + d, Vector{});
      store(b.d_out + r * b.width + d, Vector{});
    }
    b.delta[r] = 0;
    b.lse[r] = 0;
    b.token[r] = b.token[rows - 1];
  }
}

/// P = 2^(q k - lse) (0 where masked) and dS = P (d_out v - delta) for one tile of rows and a panel of keys.
void score_tile(Block& b, int64_t r, int64_t panel) {
  const int64_t head_dim = b.a.sizes.head_dim;
  const int64_t window = b.a.sizes.window;
  const int64_t first = b.first_key + panel;
  float* p = b.p + r * kScoreStride + panel;
  float* ds = b.ds + r * kScoreStride + panel;

  Vector c[kTileRows][kTileVectors];
  clear(c);
  multiply(b.q + r * b.width, b.width, b.keys_transposed + panel * head_dim, kLanes, head_dim, c);
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      c[i][v] = exp2_vector(at_most(c[i][v] - b.lse[r + i], Vector{}));
    }
  }
  if (first + kLanes - 1 > b.token[r] || (window > 0 && b.token[r + kTileRows - 1] - first >= window)) {
    const int32_t reach = window > 0 ? static_cast<int32_t>(window) : INT32_MAX;
    VectorInt lane{};
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) lane[i] = i;
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        const VectorInt distance = b.token[r + i] - (lane + static_cast<int32_t>(first + v * kWidth));
        c[i][v] = (distance >= 0) & (distance < reach) ? c[i][v] : Vector{};
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) store(p + i * kScoreStride + v * kWidth, c[i][v]);
  }
  clear(c);
  multiply(b.d_out + r * b.width, b.width, b.values_transposed + panel * head_dim, kLanes, head_dim, c);
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      store(ds + i * kScoreStride + v * kWidth, load(p + i * kScoreStride + v * kWidth) * (c[i][v] - b.delta[r + i]));
    }
  }
}

/// to[j, :] += sum over the rows of s[row, j] rows[row, :]  for the chunk's keys j: dv from P and d_out, dk from dS and
/// q.
void add_keys_gradient(const Block& b, const float* s, const float* rows, float* to) {
  for (int64_t j = 0; j < b.keys; j += kTileRows) {
    const Range seeing = b.rows_seeing(j, j + kTileRows);
    if (seeing.begin >= seeing.end) continue;
    for_column_tiles(b.width, [&]<int vectors>(int64_t d) [[gnu::always_inline]] {
      Vector c[kTileRows][vectors];
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) c[i][v] = load(to + (j + i) * b.width + d + v * kWidth);
      }
      multiply_transposed(s + seeing.begin * kScoreStride + j, kScoreStride, rows + seeing.begin * b.width + d, b.width,
                          seeing.end - seeing.begin, c);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) store(to + (j + i) * b.width + d + v * kWidth, c[i][v]);
      }
    });
  }
}

/// to[0 .. n) = factor x, or += with `add`.
KEEL_INLINE void put(float* to, int64_t n, Vector x, float factor, bool add) {
  x *= factor;
  if (add) x += load_first(to, n);
  store_first(to, n, x);
}

void add_query_gradient(const Block& b) {
  const int64_t head_dim = b.a.sizes.head_dim;
  for (int64_t r = 0; r < b.rows; r += kTileRows) {
    const Range seen = b.keys_seen(r, r + kTileRows);
    if (seen.begin >= seen.end) continue;
    const int64_t count = smaller(kTileRows, b.rows - r);
    float* to[kTileRows];
    for (int64_t i = 0; i < count; ++i) to[i] = b.a.dq(b.query(r + i), b.head(r + i));
    for_column_tiles(b.width, [&]<int vectors>(int64_t d) [[gnu::always_inline]] {
      Vector c[kTileRows][vectors];
      clear(c);
      multiply(b.ds + r * kScoreStride + seen.begin, kScoreStride, b.key_rows + seen.begin * b.width + d, b.width,
               seen.end - seen.begin, c);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        if (i >= count) break;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          const int64_t at = d + v * kWidth;
          if (at < head_dim) put(to[i] + at, head_dim - at, c[i][v], b.a.sizes.scale, !b.is_first);
        }
      }
    });
  }
}

void finish(const Block& b) {
  const int64_t head_dim = b.a.sizes.head_dim;
  for (int64_t j = 0; j < b.keys; ++j) {
    float* dk = b.a.dk(b.start + b.first_key + j, b.kv_head);
    float* dv = b.a.dv(b.start + b.first_key + j, b.kv_head);
    for (int64_t d = 0; d < head_dim; d += kWidth) {
      put(dk + d, head_dim - d, load(b.dk + j * b.width + d), b.a.sizes.scale, !b.is_first);
      put(dv + d, head_dim - d, load(b.dv + j * b.width + d), 1.0F, !b.is_first);
    }
  }
}

void differentiate(Block& b) {
  load_keys(b);
  const int64_t rows = b.tokens * b.group;
  for (int64_t first = 0; first < rows; first += kBlockRows) {
    load_rows(b, first, smaller(kBlockRows, rows - first));
    for (int64_t panel = 0; panel < b.keys; panel += kLanes) {
      const Range seeing = b.rows_seeing(panel, panel + kLanes);
      for (int64_t r = round_down(seeing.begin, kTileRows); r < seeing.end; r += kTileRows) score_tile(b, r, panel);
    }
    add_keys_gradient(b, b.p, b.d_out, b.dv);
    add_keys_gradient(b, b.ds, b.q, b.dk);
    add_query_gradient(b);
  }
  finish(b);
}

Block make_block(const AttentionBackward& a, const Blocks::Place& place, int64_t step, int64_t kv_head,
                 const Layout& layout, float* scratch) {
  const AttentionSizes& z = a.sizes;
  const int64_t start = z.cu_seqlens[place.sequence];
  const int64_t first_token = place.first_row + step * kChunk;
  const int64_t length = z.cu_seqlens[place.sequence + 1] - start;
  return {.a = a,
          .start = start,
          .kv_head = kv_head,
          .group = z.heads / z.kv_heads,
          .first_key = place.first_row,
          .keys = place.rows,
          .first_token = first_token,
          .tokens = smaller(kChunk, length - first_token),
          .is_first = step == 0,
          .width = layout.width,
          .keys_transposed = scratch + layout.keys_transposed,
          .values_transposed = scratch + layout.values_transposed,
          .key_rows = scratch + layout.keys,
          .dk = scratch + layout.dk,
          .dv = scratch + layout.dv,
          .first_row = 0,
          .rows = 0,
          .q = scratch + layout.q,
          .d_out = scratch + layout.d_out,
          .p = scratch + layout.p,
          .ds = scratch + layout.ds,
          .lse = scratch + layout.lse,
          .delta = scratch + layout.delta,
          .token = reinterpret_cast<int32_t*>(scratch + layout.token)};
}

/// How many chunks after a key's own the last query that sees it can lie, and one more.
int64_t step_count(const AttentionSizes& z) {
  int64_t longest = 0;
  for (int64_t s = 0; s < z.sequences; ++s) longest = larger(longest, z.cu_seqlens[s + 1] - z.cu_seqlens[s]);
  int64_t steps = (longest + kChunk - 1) / kChunk;
  // The nearest pair of step s is s * kChunk - (kChunk - 1) tokens apart.
  if (z.window > 0) steps = smaller(steps, (smaller(z.window, longest) + kChunk - 2) / kChunk + 1);
  return steps;
}

}  // namespace

int64_t attention_backward_scratch(int64_t head_dim) {
  return Layout(head_dim).end;
}

void attention_backward(const AttentionBackward& a) {
  const AttentionSizes& z = a.sizes;
  const Blocks blocks{z, 1, kChunk};
  const int64_t count = blocks.count() * z.kv_heads;
  const int64_t steps = step_count(z);
  const Layout layout(z.head_dim);
#pragma omp parallel num_threads(z.threads)
  for (int64_t step = 0; step < steps; ++step) {
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < count; ++i) {
      const Blocks::Place place = blocks.place(i / z.kv_heads);
      float* scratch = z.scratch + omp_get_thread_num() * z.scratch_floats;
      Block block = make_block(a, place, step, i % z.kv_heads, layout, scratch);
      if (block.keys > 0 && block.tokens > 0) differentiate(block);
    }
  }
}

}  // namespace keel::KEEL_ISA
