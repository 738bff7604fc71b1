#include "keel/kernels/attention/attention_blocks.h"
#include "keel/kernels/attention/attention_cpu.h"
#include "keel/kernels/attention/attention_tiles.h"
#include "keel/kernels/common/parallel.h"

// A sequence is cut into chunks of kChunk tokens. A block of work is one chunk of keys against one chunk of queries (of
// one kv head and its query heads). Step s takes all blocks whose queries lie s chunks after their keys: they share no
// output, so they run side by side, and dq, dk, dv of every chunk grow in the order of the steps, whatever the threads.
// Rows are (token, query head of the group) pairs as in the forward pass; P and dS are kept [rows, keys].

namespace keel::KEEL_ISA {
namespace {

constexpr int64_t kChunk = 256;
constexpr int64_t kBlockRows = 64;
constexpr int64_t kScoreStride = kChunk + 16;  // an odd number of cache lines: rows spread over the cache's sets

/// Offsets in the scratch of a thread, in floats.
struct Layout {
  int64_t width;  ///< head_dim rounded up to whole vectors
  int64_t keys_transposed, values_transposed, keys, q, d_out, p, ds, lse, delta, token, head, end;

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
    q = take(kBlockRows * width);
    d_out = take(kBlockRows * width);
    p = take(kBlockRows * kScoreStride);
    ds = take(kBlockRows * kScoreStride);
    lse = take(kBlockRows);
    delta = take(kBlockRows);
    token = take(kBlockRows);
    head = take(kBlockRows);
    end = at;
  }
};

/// Keys first_key ... of a sequence against queries first_token ...; positions count from the start of the sequence.
struct Block {
  const AttentionBackward& a;
  int64_t start;  ///< row of the sequence's first token
  int64_t kv_head, group;
  int64_t first_key, keys, first_token, tokens;
  bool is_first;  ///< dq, dk and dv are written, not added to
  int64_t width;
  /// Panels [head_dim, kLanes]; keys times scale log2(e), values times scale.
  float *keys_transposed, *values_transposed;
  float* key_rows;
  // Of kBlockRows rows at a time:
  int64_t first_row, rows;
  float *q, *d_out, *p, *ds, *lse, *delta;  ///< lse in base 2; ds and delta times scale
  int32_t *token, *head;

  int64_t query(int64_t row) const { return start + token[row]; }

  /// Rows at hand that see any of the chunk's keys [begin, end).
  Range rows_seeing(int64_t begin, int64_t end) const {
    const int64_t shift = first_key - first_token;
    const int64_t first = (begin + shift) * group - first_row;
    const int64_t window = a.sizes.window;
    const int64_t last = window > 0 ? smaller(end - 1 + shift + window, tokens) * group - first_row : rows;
    return {larger(first, 0), smaller(last, rows)};
  }
  /// Whether rows before those at hand see key j of the chunk.
  bool seen_by_earlier_rows(int64_t j) const { return (j + first_key - first_token) * group < first_row; }
  /// Keys of the chunk that any of rows [begin, end) sees.
  Range keys_seen(int64_t begin, int64_t end) const {
    const int64_t window = a.sizes.window;
    const int64_t first = window > 0 ? token[begin] - window + 1 - first_key : 0;
    return {larger(first, 0), smaller(token[end - 1] + 1 - first_key, keys)};
  }
};

[[gnu::noinline]] void load_keys(Block& b) {
  const int64_t head_dim = b.a.sizes.head_dim;
  const int64_t first = b.start + b.first_key;
  for (int64_t j = 0; j < b.keys; j += kLanes) {
    const int64_t count = smaller(kLanes, b.keys - j);
    const auto key = [&](int64_t i) { return b.a.k(first + j + i, b.kv_head); };
    const auto value = [&](int64_t i) { return b.a.v(first + j + i, b.kv_head); };
    transpose_rows(key, count, head_dim, b.a.sizes.scale * kLog2e, b.keys_transposed + j * head_dim);
    transpose_rows(value, count, head_dim, b.a.sizes.scale, b.values_transposed + j * head_dim);
  }
  copy_rows(b.a.k(first, b.kv_head), b.a.k.row_stride, b.keys, head_dim, b.key_rows, b.width);
}

KEEL_INLINE float dot(const float* x, const float* y, int64_t n) {
  Vector sum{};
  for (int64_t d = 0; d < n; d += kWidth) sum += load_first(x + d, n - d) * load_first(y + d, n - d);
  return sum_lanes(sum);
}

[[gnu::noinline]] void load_rows(Block& b, int64_t first_row, int64_t rows) {
  b.first_row = first_row;
  b.rows = rows;
  const AttentionBackward& a = b.a;
  const int64_t head_dim = a.sizes.head_dim, step = b.group * b.width;
  for_heads(first_row, rows, b.group, [&](int64_t group_head, int64_t token, int64_t first, int64_t count) {
    const int64_t head = b.kv_head * b.group + group_head, n = b.start + b.first_token + token;
    float* d_out = b.d_out + first * b.width;
    copy_rows(a.q(n, head), a.q.row_stride, count, head_dim, b.q + first * b.width, step);
    copy_rows(a.d_out(n, head), a.d_out.row_stride, count, head_dim, d_out, step);
    float* delta = a.delta + head * a.sizes.tokens + n;
    if (b.is_first) {
      for (int64_t i = 0; i < count; ++i) delta[i] = dot(d_out + i * step, a.out(n + i, head), head_dim);
    }
    const float* lse = a.lse + head * a.sizes.tokens + n;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t r = first + i * b.group;
      b.delta[r] = delta[i] * a.sizes.scale;
      b.lse[r] = lse[i] * kLog2e;
      b.token[r] = static_cast<int32_t>(b.first_token + token + i);
      b.head[r] = static_cast<int32_t>(head);
    }
  });
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

/// P = 2^(q k - lse) (0 where masked) and scale dS = scale P (d_out v - delta) for a tile of rows and the first vectors of a panel of
/// keys.
template <int vectors>
[[gnu::noinline]] void score_tile(Block& b, int64_t r, int64_t panel) {
  const int64_t head_dim = b.a.sizes.head_dim;
  const int64_t window = b.a.sizes.window;
  const int64_t first = b.first_key + panel;
  float* p = b.p + r * kScoreStride + panel;
  float* ds = b.ds + r * kScoreStride + panel;

  Vector c[kTileRows][vectors];
  clear(c);
  multiply(b.q + r * b.width, b.width, b.keys_transposed + panel * head_dim, kLanes, head_dim, c);
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      c[i][v] = exp2_vector(at_most(c[i][v] - b.lse[r + i], Vector{}));
    }
  }
  if (first + vectors * kWidth - 1 > b.token[r] || (window > 0 && b.token[r + kTileRows - 1] - first >= window)) {
    const int32_t reach = window > 0 ? static_cast<int32_t>(window) : INT32_MAX;
    const VectorInt lane = lane_numbers(Lanes{});
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const VectorInt distance = b.token[r + i] - (lane + static_cast<int32_t>(first + v * kWidth));
        c[i][v] = (distance >= 0) & (distance < reach) ? c[i][v] : Vector{};
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) store(p + i * kScoreStride + v * kWidth, c[i][v]);
  }
  clear(c);
  multiply(b.d_out + r * b.width, b.width, b.values_transposed + panel * head_dim, kLanes, head_dim, c);
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      store(ds + i * kScoreStride + v * kWidth, load(p + i * kScoreStride + v * kWidth) * (c[i][v] - b.delta[r + i]));
    }
  }
}

/// The scores of the rows at hand that see keys of a panel. What no row of a tile sees is left as it was: nobody reads it.
void score_panel(Block& b, int64_t panel) {
  const Range seeing = b.rows_seeing(panel, panel + kLanes);
  for (int64_t r = round_down(seeing.begin, kTileRows); r < seeing.end; r += kTileRows) {
    if (b.token[r + kTileRows - 1] < b.first_key + panel + kWidth)
      score_tile<1>(b, r, panel);
    else
      score_tile<kTileVectors>(b, r, panel);
  }
}

/// to[0 .. n) = x, or += with `add`.
KEEL_INLINE void put(float* to, int64_t n, Vector x, bool add) {
  if (add) x += load_first(to, n);
  store_first(to, n, x);
}

/// to[key] = sum over the rows at hand of s[row, key] rows[row, :], added to what earlier rows left, for the chunk's
/// keys: dv from P and d_out, dk from dS and q.
[[gnu::noinline]] void add_keys_gradient(const Block& b, const float* s, const float* rows, const HeadRows<float>& to) {
  const int64_t head_dim = b.a.sizes.head_dim;
  for (int64_t j = 0; j < b.keys; j += kTileRows) {
    const Range seeing = b.rows_seeing(j, j + kTileRows);
    if (seeing.begin >= seeing.end) continue;
    const bool add = !b.is_first || b.seen_by_earlier_rows(j);
    const int64_t count = smaller(kTileRows, b.keys - j);
    float* first = to(b.start + b.first_key + j, b.kv_head);
    for_column_tiles(
        b.width, [&]<int vectors>(int64_t d) __attribute__((always_inline)) {
          Vector c[kTileRows][vectors];
          clear(c);
          multiply_transposed(s + seeing.begin * kScoreStride + j, kScoreStride, rows + seeing.begin * b.width + d,
                              b.width, seeing.end - seeing.begin, c);
#pragma GCC unroll 16
          for (int i = 0; i < kTileRows; ++i) {
            if (i >= count) break;
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
              const int64_t at = d + v * kWidth;
              if (at < head_dim) put(first + i * to.row_stride + at, head_dim - at, c[i][v], add);
            }
          }
        });
  }
}

[[gnu::noinline]] void add_query_gradient(const Block& b) {
  const int64_t head_dim = b.a.sizes.head_dim;
  for (int64_t r = 0; r < b.rows; r += kTileRows) {
    const Range seen = b.keys_seen(r, r + kTileRows);
    if (seen.begin >= seen.end) continue;
    const int64_t count = smaller(kTileRows, b.rows - r);
    float* to[kTileRows];
    for (int64_t i = 0; i < count; ++i) to[i] = b.a.dq(b.query(r + i), b.head[r + i]);
    for_column_tiles(
        b.width, [&]<int vectors>(int64_t d) __attribute__((always_inline)) {
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
              if (at < head_dim) put(to[i] + at, head_dim - at, c[i][v], !b.is_first);
            }
          }
        });
  }
}

/// Rows of the batch that hold kBlockRows rows of a block from first_row on.
Range batch_rows(const Block& b, int64_t first_row) {
  const int64_t last = smaller(first_row + kBlockRows, b.tokens * b.group) - 1;
  const int64_t start = b.start + b.first_token;
  return {start + first_row / b.group, start + last / b.group + 1};
}

/// Asks for part i of `parts` of what load_rows reads from first_row on.
void prefetch_rows(const Block& b, int64_t first_row, int64_t i, int64_t parts) {
  const int64_t head_dim = b.a.sizes.head_dim;
  const Range rows = batch_rows(b, first_row).part(i, parts);
  prefetch(b.a.q, rows, b.kv_head * b.group, b.group, head_dim);
  prefetch(b.a.d_out, rows, b.kv_head * b.group, b.group, head_dim);
  if (b.is_first) prefetch(b.a.out, rows, b.kv_head * b.group, b.group, head_dim);
}

template <class T>
void prefetch_keys(const Block& b, const HeadRows<T>& x, const HeadRows<T>& y, int64_t i, int64_t parts) {
  const Range keys = Range{b.start + b.first_key, b.start + b.first_key + b.keys}.part(i, parts);
  prefetch(x, keys, b.kv_head, 1, b.a.sizes.head_dim);
  prefetch(y, keys, b.kv_head, 1, b.a.sizes.head_dim);
}

/// `next`: the block that this thread is likely to work on next.
void differentiate(Block& b, const Block& next) {
  load_keys(b);
  const int64_t rows = b.tokens * b.group, panels = (b.keys + kLanes - 1) / kLanes;
  const int64_t parts = (rows + kBlockRows - 1) / kBlockRows * panels;
  int64_t part = 0;
  for (int64_t first = 0; first < rows; first += kBlockRows) {
    load_rows(b, first, smaller(kBlockRows, rows - first));
    for (int64_t panel = 0; panel < panels; ++panel, ++part) {
      prefetch(b.a.dq, batch_rows(b, first).part(panel, panels), b.kv_head * b.group, b.group, b.a.sizes.head_dim);
      prefetch_keys(b, b.a.dk, b.a.dv, part, parts);
      if (first + kBlockRows < rows)
        prefetch_rows(b, first + kBlockRows, panel, panels);
      else if (next.keys > 0 && next.tokens > 0)
        prefetch_rows(next, 0, panel, panels);
      if (next.keys > 0 && next.tokens > 0) prefetch_keys(next, next.a.k, next.a.v, part, parts);
      score_panel(b, panel * kLanes);
    }
    add_keys_gradient(b, b.p, b.d_out, b.a.dv);
    add_keys_gradient(b, b.ds, b.q, b.a.dk);
    add_query_gradient(b);
  }
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
          .first_row = 0,
          .rows = 0,
          .q = scratch + layout.q,
          .d_out = scratch + layout.d_out,
          .p = scratch + layout.p,
          .ds = scratch + layout.ds,
          .lse = scratch + layout.lse,
          .delta = scratch + layout.delta,
          .token = reinterpret_cast<int32_t*>(scratch + layout.token),
          .head = reinterpret_cast<int32_t*>(scratch + layout.head)};
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
  for (int64_t step = 0; step < steps; ++step) {
    for_parts(z.threads, count, [&](int64_t i, int thread) {
      float* scratch = z.scratch + thread * z.scratch_floats;
      const auto block = [&](int64_t number) {
        return make_block(a, blocks.place(number / z.kv_heads), step, number % z.kv_heads, layout, scratch);
      };
      Block b = block(i);
      if (b.keys > 0 && b.tokens > 0) differentiate(b, block(smaller(i + 1, count - 1)));
    });
  }
}

}  // namespace keel::KEEL_ISA
