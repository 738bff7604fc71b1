#include <omp.h>

#include "keel/kernels/attention/attention_blocks.h"
#include "keel/kernels/attention/attention_cpu.h"
#include "keel/kernels/attention/attention_tiles.h"

// A block of work is kBlockRows rows of one sequence and kv head, row r being query head r % group of token r / group:
// the heads of a group share the keys and values that are loaded. Keys come in tiles of kKeyTile, counted from the
// start of the sequence; the rows in panels of kLanes. Scores of a tile and a panel are kept transposed, [keys,
// kLanes], so that maxima and sums over keys go lane by lane. Nothing about a row depends on the block or panel it
// falls in.

namespace keel::KEEL_ISA {
namespace {

constexpr int64_t kBlockRows = 128;
constexpr int64_t kKeyTile = 128;
constexpr float kLowest = -0x1.fffffep127F;

/// Offsets in the scratch of a thread, in floats.
struct Layout {
  int64_t width;  ///< head_dim rounded up to whole vectors
  int64_t q, keys, values, scores, out, peak, sum, decay, token, end;

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
    end = at;
  }
};

struct Range {
  int64_t begin, end;
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
  int32_t* token;                           ///< position of each row's token; padding rows repeat the last

  int64_t panels() const { return (rows + kLanes - 1) / kLanes; }
  int64_t query(int64_t row) const { return a.sizes.cu_seqlens[sequence] + (first_row + row) / group; }
  int64_t head(int64_t row) const { return kv_head * group + (first_row + row) % group; }

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
          .token = reinterpret_cast<int32_t*>(scratch + layout.token)};
}

void start(Block& b) {
  const int64_t head_dim = b.a.sizes.head_dim;
  for (int64_t panel = 0; panel < b.panels(); ++panel) {
    const int64_t first = panel * kLanes;
    const auto row = [&](int64_t i) { return b.a.q(b.query(first + i), b.head(first + i)); };
    transpose_rows(row, smaller(kLanes, b.rows - first), head_dim, b.a.sizes.scale * kLog2e, b.q + first * head_dim);
  }
  const int64_t padded = b.panels() * kLanes;
  for (int64_t r = 0; r < padded; ++r) {
    b.token[r] = static_cast<int32_t>(b.first_position + (b.first_row + smaller(r, b.rows - 1)) / b.group);
    b.peak[r] = kLowest;
    b.sum[r] = 0;
  }
  for (int64_t i = 0; i < padded * b.width; i += kWidth) store(b.out + i, Vector{});
}

/// Copies keys [begin, end) of the tile that starts at `tile`, and zeros up to a whole register tile.
void load_keys(Block& b, int64_t tile, int64_t begin, int64_t end) {
  const AttentionForward& a = b.a;
  const int64_t head_dim = a.sizes.head_dim;
  const int32_t* pages = a.page_table == nullptr ? nullptr : a.page_table + b.sequence * a.page_table_stride;
  for (int64_t j = begin; j < end; ++j) {
    const int64_t row =
        pages == nullptr ? a.sizes.cu_seqlens[b.sequence] + j : pages[j / a.page_size] * a.page_size + j % a.page_size;
    copy_row(a.k(row, b.kv_head), head_dim, b.keys + (j - tile) * b.width);
    copy_row(a.v(row, b.kv_head), head_dim, b.values + (j - tile) * b.width);
  }
  for (int64_t j = end; j < round_up(end, kTileRows); ++j) {
    for (int64_t d = 0; d < b.width; d += kWidth) store(b.keys + (j - tile) * b.width + d, Vector{});
  }
}

/// scores[j, lane] = scale log2(e) q . k, -infinity where the lane does not see the key, and the new peaks.
void score(Block& b, int64_t panel, int64_t tile, Range keys) {
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
void exponentiate(Block& b, int64_t panel, int64_t tile, Range keys) {
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

/// out = decay out + sum_j scores[j] v[j].
void accumulate(Block& b, int64_t panel, int64_t tile) {
  for (int64_t r = panel * kLanes; r < smaller((panel + 1) * kLanes, b.rows); r += kTileRows) {
    Range keys = b.visible(r, r + kTileRows);
    keys = {larger(keys.begin, tile), smaller(keys.end, tile + kKeyTile)};
    if (keys.begin >= keys.end) continue;
    const float* p = b.scores + (keys.begin - tile) * kLanes + r % kLanes;
    const float* v = b.values + (keys.begin - tile) * b.width;
    for_column_tiles(b.width, [&]<int vectors>(int64_t d) [[gnu::always_inline]] {
      Vector c[kTileRows][vectors];
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) c[i][j] = load(b.out + (r + i) * b.width + d + j * kWidth) * b.decay[r + i];
      }
      multiply_transposed(p, kLanes, v + d, b.width, keys.end - keys.begin, c);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) store(b.out + (r + i) * b.width + d + j * kWidth, c[i][j]);
      }
    });
  }
}

void finish(Block& b) {
  const int64_t head_dim = b.a.sizes.head_dim;
  for (int64_t r = 0; r < b.rows; r += kWidth) {
    const Vector sum = load(b.sum + r);
    store(b.decay + r, 1.0F / sum);
    store(b.sum + r, (load(b.peak + r) + log2_vector(sum)) * kLn2);
  }
  for (int64_t r = 0; r < b.rows; ++r) {
    float* to = b.a.out(b.query(r), b.head(r));
    for (int64_t d = 0; d < head_dim; d += kWidth) {
      store_first(to + d, head_dim - d, load(b.out + r * b.width + d) * b.decay[r]);
    }
    if (b.a.lse != nullptr) b.a.lse[b.head(r) * b.a.sizes.tokens + b.query(r)] = b.sum[r];
  }
}

void attend(Block& b) {
  start(b);
  const Range all = b.visible(0, b.rows);
  for (int64_t tile = round_down(all.begin, kKeyTile); tile < all.end; tile += kKeyTile) {
    const int64_t begin = larger(tile, round_down(all.begin, kTileRows));
    load_keys(b, tile, begin, smaller(tile + kKeyTile, all.end));
    for (int64_t panel = 0; panel < b.panels(); ++panel) {
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

}  // namespace

int64_t attention_forward_scratch(int64_t head_dim) {
  return Layout(head_dim).end;
}

void attention_forward(const AttentionForward& a) {
  const AttentionSizes& z = a.sizes;
  const Blocks blocks{z, z.heads / z.kv_heads, kBlockRows};
  const int64_t count = blocks.count() * z.kv_heads;
  const Layout layout(z.head_dim);
  // Later blocks of a sequence have more keys: the longest first, whichever thread is free.
#pragma omp parallel for num_threads(z.threads) schedule(dynamic)
  for (int64_t i = count - 1; i >= 0; --i) {
    const Blocks::Place place = blocks.place(i / z.kv_heads);
    if (place.rows <= 0) continue;
    float* scratch = z.scratch + omp_get_thread_num() * z.scratch_floats;
    Block block = make_block(a, place, i % z.kv_heads, layout, scratch);
    attend(block);
  }
}

}  // namespace keel::KEEL_ISA
