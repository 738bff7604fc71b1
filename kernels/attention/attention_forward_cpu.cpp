#include "keel/kernels/attention/attention_blocks.h"
#include "keel/kernels/attention/attention_cpu.h"
#include "keel/kernels/attention/attention_few_rows.h"
#include "keel/kernels/attention/attention_tiles.h"
#include "keel/kernels/common/parallel.h"

// A block of work is kBlockRows rows of one sequence and kv head, row r being query head r % group of token r / group:
// the heads of a group share the keys and values that are loaded. Keys come in tiles of kKeyTile, counted from the
// start of the sequence; the rows in panels of kLanes. Scores of a tile and a panel are kept transposed, [keys,
// kLanes], so that maxima and sums over keys go lane by lane. Nothing about a row depends on the block or panel it
// falls in.

namespace keel::KEEL_ISA {
namespace {

constexpr int64_t kBlockRows = 256;  ///< at most: fewer where there would be too few blocks for the threads
constexpr int64_t kKeyTile = 128;
constexpr float kLowest = -0x1.fffffep127F;

/// Offsets in the scratch of a thread, in floats.
struct Layout {
  int64_t width;  ///< head_dim rounded up to whole vectors
  int64_t q, keys, values, scores, out, peak, sum, decay, token, q_offset, end;

  explicit Layout(int64_t head_dim) : width(round_up(head_dim, kWidth)) {
    int64_t at = 0;
    const auto take = [&at](int64_t floats) {
      const int64_t start = at;
      at += round_up(floats, 16) + 16;  // a line between, so that equal sizes do not share cache sets
      return start;
    };
    q = take(kBlockRows * head_dim);
    keys = take(kKeyTile * width);
    values = take(kKeyTile * width);
    scores = take(kKeyTile * kLanes);
    out = take(kBlockRows * width);
    peak = take(kBlockRows);
    sum = take(kBlockRows);
    decay = take(kBlockRows);
    token = take(kBlockRows);
    q_offset = take(2 * kBlockRows);
    end = at;
  }
};

/// One block: what its rows have seen so far.
struct Block {
  const AttentionForward& a;
  int64_t sequence, kv_head, first_row, rows;
  int64_t group;           ///< query heads of a kv head
  int64_t first_position;  ///< of the sequence's first query among its keys
  int64_t width;
  float *q, *keys, *values, *scores, *out;  // scratch, see Layout
  float *peak, *sum;                        ///< running maximum of the scores (base 2) and sum of 2^(score - peak)
  float* decay;                             ///< 2^(old peak - new peak)
  // Of each row; padding rows repeat the last:
  int32_t* token;     ///< position among the keys
  int64_t* q_offset;  ///< in the query tensor

  int64_t panels() const { return (rows + kLanes - 1) / kLanes; }

  /// Keys that rows [begin, end) see together.
  Range visible(int64_t begin, int64_t end) const {
    const int64_t first = a.sizes.window > 0 ? token[begin] - a.sizes.window + 1 : 0;
    return {larger(first, 0), token[end - 1] + 1};
  }
};

Block make_block(const AttentionForward& a, const Blocks::Place& place, int64_t kv_head, const Layout& layout,
                 float* scratch) {
  const AttentionSizes& z = a.sizes;
  const int64_t queries = z.cu_seqlens[place.sequence + 1] - z.cu_seqlens[place.sequence];
  return {.a = a,
          .sequence = place.sequence,
          .kv_head = kv_head,
          .first_row = place.first_row,
          .rows = place.rows,
          .group = z.heads / z.kv_heads,
          .first_position = a.kv_lengths == nullptr ? 0 : a.kv_lengths[place.sequence] - queries,
          .width = layout.width,
          .q = scratch + layout.q,
          .keys = scratch + layout.keys,
          .values = scratch + layout.values,
          .scores = scratch + layout.scores,
          .out = scratch + layout.out,
          .peak = scratch + layout.peak,
          .sum = scratch + layout.sum,
          .decay = scratch + layout.decay,
          .token = reinterpret_cast<int32_t*>(scratch + layout.token),
          .q_offset = reinterpret_cast<int64_t*>(scratch + layout.q_offset)};
}

[[gnu::noinline]] void start(Block& b) {
  const HeadRows<const float>& q = b.a.q;
  const int64_t head_dim = b.a.sizes.head_dim, padded = b.panels() * kLanes;
  int64_t token = b.first_row / b.group, head = b.first_row % b.group;
  int64_t offset =
      (b.a.sizes.cu_seqlens[b.sequence] + token) * q.row_stride + (b.kv_head * b.group + head) * q.head_stride;
  for (int64_t r = 0; r < padded; ++r) {
    b.token[r] = static_cast<int32_t>(b.first_position + token);
    b.q_offset[r] = offset;
    b.peak[r] = kLowest;
    b.sum[r] = 0;
    if (r + 1 >= b.rows) continue;
    offset += q.head_stride;
    if (++head == b.group) {
      head = 0;
      ++token;
      offset += q.row_stride - b.group * q.head_stride;
    }
  }
  for (int64_t first = 0; first < b.rows; first += kLanes) {
    const auto row = [&](int64_t i) { return q.data + b.q_offset[first + i]; };
    transpose_rows(row, kLanes, head_dim, b.a.sizes.scale * kLog2e, b.q + first * head_dim);
  }
}

/// Row of the key tensors that holds key j.
int64_t key_row(const AttentionForward& a, int64_t sequence, int64_t j) {
  if (a.page_table == nullptr) return a.sizes.cu_seqlens[sequence] + j;
  return a.page_table[sequence * a.page_table_stride + j / a.page_size] * a.page_size + j % a.page_size;
}

/// Copies keys [begin, end) of the tile that starts at `tile`, and zeros up to a whole register tile.
[[gnu::noinline]] void load_keys(Block& b, int64_t tile, int64_t begin, int64_t end) {
  const AttentionForward& a = b.a;
  const int64_t head_dim = a.sizes.head_dim;
  for (int64_t j = begin; j < end;) {
    const int64_t next = a.page_table == nullptr ? end : smaller(end, round_down(j, a.page_size) + a.page_size);
    const int64_t row = key_row(a, b.sequence, j), at = (j - tile) * b.width;
    copy_rows(a.k(row, b.kv_head), a.k.row_stride, next - j, head_dim, b.keys + at, b.width);
    copy_rows(a.v(row, b.kv_head), a.v.row_stride, next - j, head_dim, b.values + at, b.width);
    j = next;
  }
  for (int64_t j = end; j < round_up(end, kTileRows); ++j) {
    for (int64_t d = 0; d < b.width; d += kWidth) store(b.keys + (j - tile) * b.width + d, Vector{});
  }
}

/// scores[j, lane] = scale log2(e) q . k, -infinity where the lane does not see the key, and the new peaks.
[[gnu::noinline]] void score(Block& b, int64_t panel, int64_t tile, Range keys) {
  const int64_t first = panel * kLanes;
  const int64_t window = b.a.sizes.window;
  const Range unmasked{window > 0 ? b.token[first + kLanes - 1] - window + 1 : 0, b.token[first] + 1};
  VectorInt token[kTileVectors];
  Vector peak[kTileVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kTileVectors; ++v) {
    token[v] = load(b.token + first + v * kWidth);
    peak[v] = load(b.peak + first + v * kWidth);
  }
  for (int64_t j = round_down(keys.begin, kTileRows); j < keys.end; j += kTileRows) {
    Vector c[kTileRows][kTileVectors];
    clear(c);
    multiply(b.keys + (j - tile) * b.width, b.width, b.q + first * b.a.sizes.head_dim, kLanes, b.a.sizes.head_dim, c);
    if (j < unmasked.begin || j + kTileRows > unmasked.end) {
      const int32_t reach = window > 0 ? static_cast<int32_t>(window) : INT32_MAX;
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) {
          const VectorInt distance = token[v] - static_cast<int32_t>(j + i);
          c[i][v] = (distance >= 0) & (distance < reach) ? c[i][v] : broadcast(-__builtin_inff());
        }
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        peak[v] = at_least(c[i][v], peak[v]);
        store(b.scores + (j - tile + i) * kLanes + v * kWidth, c[i][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kTileVectors; ++v) {
    float* old = b.peak + first + v * kWidth;
    store(b.decay + first + v * kWidth, exp2_vector(load(old) - peak[v]));
    store(old, peak[v]);
  }
}

/// scores = 2^(scores - peak), and their sums.
[[gnu::noinline]] void exponentiate(Block& b, int64_t panel, int64_t tile, Range keys) {
  const int64_t first = panel * kLanes;
  Vector peak[kTileVectors], sum[kTileVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kTileVectors; ++v) {
    peak[v] = load(b.peak + first + v * kWidth);
    sum[v] = load(b.sum + first + v * kWidth) * load(b.decay + first + v * kWidth);
  }
  for (int64_t j = keys.begin; j < keys.end; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      float* at = b.scores + (j - tile) * kLanes + v * kWidth;
      const Vector p = exp2_vector(load(at) - peak[v]);
      store(at, p);
      sum[v] += p;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kTileVectors; ++v) store(b.sum + first + v * kWidth, sum[v]);
}

/// out = decay out + sum_j scores[j] v[j], from 0 in a row's first tile.
[[gnu::noinline]] void accumulate(Block& b, int64_t panel, int64_t tile) {
  for (int64_t r = panel * kLanes; r < smaller((panel + 1) * kLanes, b.rows); r += kTileRows) {
    const Range seen = b.visible(r, r + kTileRows);
    const Range keys{larger(seen.begin, tile), smaller(seen.end, tile + kKeyTile)};
    if (keys.begin >= keys.end) continue;
    const bool is_first = seen.begin >= tile;
    const float* p = b.scores + (keys.begin - tile) * kLanes + r % kLanes;
    const float* v = b.values + (keys.begin - tile) * b.width;
    for_column_tiles(
        b.width, [&]<int vectors>(int64_t d) __attribute__((always_inline)) {
          float* out = b.out + r * b.width + d;
          Vector c[kTileRows][vectors];
#pragma GCC unroll 16
          for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
            for (int j = 0; j < vectors; ++j) {
              c[i][j] = is_first ? Vector{} : load(out + i * b.width + j * kWidth) * b.decay[r + i];
            }
          }
          multiply_transposed(p, kLanes, v + d, b.width, keys.end - keys.begin, c);
#pragma GCC unroll 16
          for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
            for (int j = 0; j < vectors; ++j) store(out + i * b.width + j * kWidth, c[i][j]);
          }
        });
  }
}

[[gnu::noinline]] void finish(Block& b) {
  const AttentionForward& a = b.a;
  const int64_t start = a.sizes.cu_seqlens[b.sequence];
  for (int64_t r = 0; r < b.rows; r += kWidth) {
    const Vector sum = load(b.sum + r);
    store(b.decay + r, 1.0F / sum);
    store(b.sum + r, (load(b.peak + r) + log2_vector(sum)) * kLn2);
  }
  for_heads(b.first_row, b.rows, b.group, [&](int64_t group_head, int64_t token, int64_t first, int64_t count) {
    const int64_t head = b.kv_head * b.group + group_head;
    float* to = a.out(start + token, head);
    for_each_vector(
        count, a.sizes.head_dim, [&](int64_t i, int64_t d, int64_t lanes) __attribute__((always_inline)) {
          const int64_t r = first + i * b.group;
          store_first(to + i * a.out.row_stride + d, lanes, load(b.out + r * b.width + d) * b.decay[r]);
        });
    if (a.lse == nullptr) return;
    float* lse = a.lse + head * a.sizes.tokens + start + token;
    for (int64_t i = 0; i < count; ++i) lse[i] = b.sum[first + i * b.group];
  });
}

/// Asks for keys and values ahead of load_keys.
void prefetch_keys(const Block& b, Range keys) {
  const int64_t head_dim = b.a.sizes.head_dim;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const int64_t row = key_row(b.a, b.sequence, j);
    prefetch(b.a.k, {row, row + 1}, b.kv_head, 1, head_dim);
    prefetch(b.a.v, {row, row + 1}, b.kv_head, 1, head_dim);
  }
}

/// Asks for part i of `parts` of what a block reads first: its queries and a tile of keys.
void prefetch_start(const Block& b, int64_t i, int64_t parts) {
  const AttentionSizes& z = b.a.sizes;
  const int64_t start = z.cu_seqlens[b.sequence];
  const Range tokens{b.first_row / b.group, (b.first_row + b.rows - 1) / b.group + 1};
  prefetch(b.a.q, Range{start + tokens.begin, start + tokens.end}.part(i, parts), b.kv_head * b.group, b.group,
           z.head_dim);
  const int64_t first = z.window > 0 ? larger(b.first_position + tokens.begin - z.window + 1, 0) : 0;
  const int64_t last = smaller(b.first_position + tokens.end, round_down(first, kKeyTile) + kKeyTile);
  prefetch_keys(b, Range{first, last}.part(i, parts));
}

/// Asks for what finish writes of a panel, and for a part of what the next block reads first.
void prefetch_end(const Block& b, const Block& next, int64_t panel) {
  const int64_t first = panel * kLanes, start = b.a.sizes.cu_seqlens[b.sequence];
  for_heads(
      b.first_row + first, smaller(kLanes, b.rows - first), b.group,
      [&](int64_t head, int64_t token, int64_t, int64_t count) {
        prefetch(b.a.out, {start + token, start + token + count}, b.kv_head * b.group + head, 1, b.a.sizes.head_dim);
      });
  if (next.rows > 0) prefetch_start(next, panel, b.panels());
}

/// `next`: the block that this thread is likely to work on next.
void attend(Block& b, const Block& next) {
  start(b);
  const Range all = b.visible(0, b.rows);
  const int64_t panels = b.panels();
  for (int64_t tile = round_down(all.begin, kKeyTile); tile < all.end; tile += kKeyTile) {
    const int64_t begin = larger(tile, round_down(all.begin, kTileRows));
    load_keys(b, tile, begin, smaller(tile + kKeyTile, all.end));
    const Range following{tile + kKeyTile, smaller(tile + 2 * kKeyTile, all.end)};
    for (int64_t panel = 0; panel < panels; ++panel) {
      if (following.begin < following.end)
        prefetch_keys(b, following.part(panel, panels));
      else
        prefetch_end(b, next, panel);
      Range keys = b.visible(panel * kLanes, (panel + 1) * kLanes);
      keys = {larger(keys.begin, tile), smaller(keys.end, tile + kKeyTile)};
      if (keys.begin >= keys.end) continue;
      score(b, panel, tile, keys);
      exponentiate(b, panel, tile, keys);
      accumulate(b, panel, tile);
    }
  }
  finish(b);
}

/// Copies the queries of a block of few rows, with the scale.
[[gnu::noinline]] void start_few(Block& b) {
  const HeadRows<const float>& q = b.a.q;
  const int64_t head_dim = b.a.sizes.head_dim, start = b.a.sizes.cu_seqlens[b.sequence];
  const float scale = b.a.sizes.scale * kLog2e;
  for (int64_t r = 0; r < round_up(b.rows, kWidth); ++r) {
    b.peak[r] = kLowest;
    b.sum[r] = 0;
  }
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t token = (b.first_row + r) / b.group, head = (b.first_row + r) % b.group;
    const float* from = q(start + token, b.kv_head * b.group + head);
    b.token[r] = static_cast<int32_t>(b.first_position + token);
    for (int64_t d = 0; d < b.width; ++d) b.q[r * b.width + d] = d < head_dim ? from[d] * scale : 0;
  }
}

void find_keys(const Block& b, Range range, FewKeys<kKeyTile>& found) {
  const AttentionForward& a = b.a;
  found.begin = range.begin;
  found.count = range.end - range.begin;
  for (int64_t j = range.begin; j < range.end;) {
    const int64_t next =
        a.page_table == nullptr ? range.end : smaller(range.end, round_down(j, a.page_size) + a.page_size);
    for (int64_t row = key_row(a, b.sequence, j); j < next; ++j, ++row) {
      found.keys[j - range.begin] = a.k(row, b.kv_head);
      found.values[j - range.begin] = a.v(row, b.kv_head);
      prefetch_row(found.keys[j - range.begin], a.sizes.head_dim);
    }
  }
}

void attend_few(Block& b) {
  const AttentionSizes& z = b.a.sizes;
  start_few(b);
  const FewRows few{.rows = b.rows,
                    .head_dim = z.head_dim,
                    .width = b.width,
                    .window = z.window,
                    .token = b.token,
                    .q = b.q,
                    .scores = b.scores,
                    .out = b.out,
                    .score_stride = kKeyTile,
                    .peak = b.peak,
                    .sum = b.sum,
                    .decay = b.decay};
  const Range all = b.visible(0, b.rows);
  FewKeys<kKeyTile> keys;
  for (int64_t tile = round_down(all.begin, kKeyTile); tile < all.end; tile += kKeyTile) {
    find_keys(b, {larger(tile, all.begin), smaller(tile + kKeyTile, all.end)}, keys);
    few_scores(few, keys);
    few_exponentials(few, keys.count);
    few_values(few, keys, tile <= all.begin);
  }
  finish(b);
}

}  // namespace

int64_t attention_forward_scratch(int64_t head_dim) {
  return Layout(head_dim).end;
}

void attention_forward(const AttentionForward& a) {
  const AttentionSizes& z = a.sizes;
  const int64_t group = z.heads / z.kv_heads;
  int64_t block_rows = kBlockRows;
  while (block_rows > kLanes && z.attending() * z.heads < 4 * z.threads.count * block_rows) block_rows /= 2;
  const Blocks blocks{z, group, block_rows};
  const int64_t count = blocks.count() * z.kv_heads;
  const Layout layout(z.head_dim);
  // Later blocks of a sequence have more keys: the longest first, whichever thread is free.
  for_parts(z.threads, count, [&](int64_t part, int thread) {
    const int64_t i = count - 1 - part;
    float* scratch = z.scratch + thread * z.scratch_floats;
    const auto block = [&](int64_t number) {
      return make_block(a, blocks.place(number / z.kv_heads), number % z.kv_heads, layout, scratch);
    };
    Block b = block(i);
    if (b.rows <= 0) return;
    // By the sequence, not the block: how many rows a block has depends on the threads.
    const int64_t queries = z.cu_seqlens[b.sequence + 1] - z.cu_seqlens[b.sequence];
    if (queries * group <= kFewRows) return attend_few(b);
    attend(b, block(larger(i - 1, 0)));
  });
}

}  // namespace keel::KEEL_ISA
