// What attention promises beyond its formula: what a row depends on, to the bit, pages, and what is refused.

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/attention/attention.h"
#include "keel/kernels/attention/attention_test_support.h"
#include "keel/kernels/common/operation_profile.h"

namespace keel {
namespace {

using namespace attention_testing;

TEST(Attention, OutputMayTakeThePlaceOfTheQueries) {
  const AttentionShape s = make_shape({100, 33}, 4, 2, 20);
  const Inputs in = make_inputs(s);
  for (Isa isa : isas_to_test()) {
    Context context = testing::test_context(2, isa);
    Results apart;
    run_forward(context, s, in, apart);
    Packed qkv(s);
    qkv.q.assign(in.q);
    qkv.k.assign(in.k);
    qkv.v.assign(in.v);
    attention(context, qkv.q.view(), {.keys = qkv.k.view(), .values = qkv.v.view()}, sequences(s),
              static_cast<float>(s.scale), s.window, qkv.q.view(), {});
    EXPECT_EQ(qkv.q.values(), apart.out) << isa_name(isa);
    EXPECT_EQ(qkv.k.values(), in.k) << isa_name(isa);
    EXPECT_EQ(qkv.v.values(), in.v) << isa_name(isa);
    qkv.expect_gaps_untouched();
  }
}

// What a row depends on.

template <class T>
std::vector<T> rows(const std::vector<T>& x, int64_t width, int64_t begin, int64_t end) {
  return {x.begin() + begin * width, x.begin() + end * width};
}

/// Sequences [first, end) of a batch alone, in the buffers of all.
void run_part(Context& context, const AttentionShape& s, const Inputs& in, int64_t first, int64_t end, Packed& qkv,
              Packed& gradients, Part& out, Guarded<float>& lse, Guarded<float>& delta) {
  const View<const int32_t, 1> part = sequences(s).slice(first, end + 1);
  const View<const float, 3> d_out(in.d_out.data(), {s.tokens(), s.heads, s.head_dim});
  const View<float, 2> lse_view(lse.get(), {s.heads, s.tokens()});
  attention(context, qkv.q.view(), {.keys = qkv.k.view(), .values = qkv.v.view()}, part, static_cast<float>(s.scale),
            s.window, out.view(), lse_view);
  attention_backward(context, d_out, qkv.q.view(), qkv.k.view(), qkv.v.view(), out.view(), lse_view, part,
                     static_cast<float>(s.scale), s.window, gradients.q.view(), gradients.k.view(), gradients.v.view(),
                     {delta.get(), {s.heads, s.tokens()}});
}

TEST(Attention, PartsOfABatchGiveWhatTheWholeGives) {
  const AttentionShape s = make_shape({37, 0, 150, 64, 130}, 4, 2, 12);
  const Inputs in = make_inputs(s);
  for (Isa isa : isas_to_test()) {
    Context context = testing::test_context(2, isa);
    const Results whole = run(context, s, in);
    Packed qkv(s), gradients(s);
    qkv.q.assign(in.q);
    qkv.k.assign(in.k);
    qkv.v.assign(in.v);
    const int64_t width = s.heads * s.head_dim;
    Guarded<float> out_buffer(s.tokens() * width), lse(s.heads * s.tokens()), delta(s.heads * s.tokens());
    Part out(out_buffer, 0, width, s.tokens(), s.heads, s.head_dim);
    run_part(context, s, in, 2, 4, qkv, gradients, out, lse, delta);
    for (const std::vector<float>& x : {out.values(), gradients.q.values(), lse.values(), delta.values()}) {
      EXPECT_EQ(std::count_if(x.begin(), x.end(), [](float v) { return std::isnan(v); }),
                std::ssize(x) / s.tokens() * (37 + 130))
          << "rows outside the part stay as they were";
    }
    run_part(context, s, in, 0, 2, qkv, gradients, out, lse, delta);
    run_part(context, s, in, 4, 5, qkv, gradients, out, lse, delta);
    const Results parts{.out = out.values(),
                        .lse = lse.values(),
                        .dq = gradients.q.values(),
                        .dk = gradients.k.values(),
                        .dv = gradients.v.values()};
    EXPECT_TRUE(parts == whole) << isa_name(isa);
  }
}

TEST(Attention, NeighboursInTheBatchChangeNoBits) {
  for (int64_t window : {0, 50}) {
    const AttentionShape batch = make_shape({37, 150, 3}, 4, 2, 12, window),
                         alone = make_shape({150}, 4, 2, 12, window);
    const Inputs in = make_inputs(batch);
    const int64_t q = 4 * 12, k = 2 * 12;
    const Inputs part{rows(in.q, q, 37, 187), rows(in.k, k, 37, 187), rows(in.v, k, 37, 187),
                      rows(in.d_out, q, 37, 187)};
    for (Isa isa : isas_to_test()) {
      Context context = testing::test_context(1, isa);
      const Results whole = run(context, batch, in), single = run(context, alone, part);
      EXPECT_EQ(rows(whole.out, q, 37, 187), single.out) << isa_name(isa);
      EXPECT_EQ(rows(whole.dq, q, 37, 187), single.dq) << isa_name(isa);
      EXPECT_EQ(rows(whole.dk, k, 37, 187), single.dk) << isa_name(isa);
      EXPECT_EQ(rows(whole.dv, k, 37, 187), single.dv) << isa_name(isa);
    }
  }
}

TEST(Attention, LaterTokensAreExcluded) {
  const AttentionShape s = make_shape({140}, 2, 1, 8);
  const Inputs in = make_inputs(s);
  Inputs wild = in;
  const int64_t from = 61;
  std::fill(wild.q.begin() + from * 16, wild.q.end(), 1e30F);
  std::fill(wild.k.begin() + from * 8, wild.k.end(), -1e30F);
  std::fill(wild.v.begin() + from * 8, wild.v.end(), 1e30F);
  for (Isa isa : isas_to_test()) {
    Context context = testing::test_context(1, isa);
    Results a, b;
    run_forward(context, s, in, a);
    run_forward(context, s, wild, b);
    EXPECT_EQ(rows(a.out, 16, 0, from), rows(b.out, 16, 0, from)) << isa_name(isa);
  }
}

TEST(Attention, NotANumberSpreadsToTheRowsThatSeeIt) {
  const AttentionShape s = make_shape({40, 40}, 2, 1, 8);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  // On a CPU, two rows that are computed together get each other's zeros times what only one sees: weights alone count.
  const bool is_strict = testing::test_device().has_value();
  const auto has_nan = [&](const std::vector<float>& x, int64_t n) {  // of head 0
    const auto row = x.begin() + s.q_at(n, 0);
    return std::any_of(row, row + (is_strict ? s.head_dim : 1), [](float value) { return std::isnan(value); });
  };
  for (auto which : {&Inputs::q, &Inputs::k, &Inputs::v}) {
    if (which == &Inputs::v && !is_strict) continue;
    Inputs in = make_inputs(s);
    (in.*which)[13 * (in.*which).size() / 80 + 3] = kNan;  // token 13
    for (Isa isa : isas_to_test()) {
      Context context = testing::test_context(1, isa);
      const Results r = run(context, s, in);
      for (int64_t n = 0; n < 80; ++n) {
        const bool sees = which == &Inputs::q ? n == 13 : n >= 13 && n < 40;
        EXPECT_EQ(has_nan(r.out, n), sees) << isa_name(isa) << ", token " << n;
        EXPECT_EQ(std::isnan(r.lse[n]), sees && which != &Inputs::v) << isa_name(isa) << ", token " << n;
        EXPECT_EQ(has_nan(r.dq, n), sees) << isa_name(isa) << ", token " << n;
      }
    }
  }
}

TEST(Attention, NothingRemainsOfAnEarlierCall) {
  for (int64_t window : {0, 20}) {
    const AttentionShape s = make_shape({200, 3}, 4, 2, 20, window);
    const Inputs in = make_inputs(s);
    Inputs broken = in;
    for (auto which : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::d_out}) {
      std::fill((broken.*which).begin(), (broken.*which).end(), std::numeric_limits<float>::quiet_NaN());
    }
    for (Isa isa : isas_to_test()) {
      Context context = testing::test_context(1, isa);
      const Results clean = run(context, s, in);
      run(context, s, broken);
      EXPECT_TRUE(run(context, s, in) == clean) << isa_name(isa) << ", window " << window;
    }
  }
}

// Keys and values through pages.

struct Pages {
  int64_t size, per_sequence;
  std::vector<int32_t> table, lengths;
  std::vector<float> keys, values;
  int64_t rows;
  /// Spreads the keys of `s` over pages in a random order; unused rows hold NaN, unused table entries a wild number.
  Pages(const AttentionShape& s, const Inputs& in, int64_t page_size) : size(page_size), per_sequence(1) {
    const int64_t count = static_cast<int64_t>(s.cu_seqlens.size()) - 1, width = s.kv_heads * s.head_dim;
    int64_t pages = 0;
    for (int64_t i = 0; i < count; ++i) {
      lengths.push_back(s.cu_seqlens[i + 1] - s.cu_seqlens[i]);
      const int64_t wanted = (lengths[i] + size - 1) / size;
      per_sequence = std::max(per_sequence, wanted);
      pages += wanted;
    }
    std::vector<int32_t> order(pages);
    std::iota(order.begin(), order.end(), 0);
    Random random(kSeed);
    for (int64_t i = pages - 1; i > 0; --i) std::swap(order[i], order[random.integer(0, i)]);
    rows = pages * size;
    keys.assign(rows * width, std::numeric_limits<float>::quiet_NaN());
    values = keys;
    table.assign(count * per_sequence, -7);
    int64_t next = 0;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t t = 0; t < lengths[i]; ++t) {
        int32_t& page = table[i * per_sequence + t / size];
        if (t % size == 0) page = order[next++];
        const int64_t from = (s.cu_seqlens[i] + t) * width, to = (page * size + t % size) * width;
        std::copy_n(in.k.begin() + from, width, keys.begin() + to);
        std::copy_n(in.v.begin() + from, width, values.begin() + to);
      }
    }
  }
  KeysValues view(const AttentionShape& s) const {
    const int64_t count = static_cast<int64_t>(lengths.size());
    return {.keys = {keys.data(), {rows, s.kv_heads, s.head_dim}},
            .values = {values.data(), {rows, s.kv_heads, s.head_dim}},
            .page_table = {table.data(), {count, per_sequence}},
            .kv_lengths = {lengths.data(), {count}},
            .page_size = size};
  }
};

/// The last tokens[i] queries of each sequence, through pages, give the bits that the whole sequences give; where they are
/// so few that sums are in another order (attention_few_rows.h), what the reference gives.
void compare_pages(const AttentionShape& s, const std::vector<int32_t>& last, int64_t page_size) {
  SCOPED_TRACE(describe(s) + ", pages of " + std::to_string(page_size));
  const Inputs in = make_inputs(s);
  const Pages pages(s, in, page_size);
  const int64_t width = s.heads * s.head_dim;
  std::vector<int32_t> cu_seqlens{0};
  std::vector<float> q;
  for (size_t i = 0; i < last.size(); ++i) {
    cu_seqlens.push_back(cu_seqlens.back() + last[i]);
    q.insert(q.end(), in.q.begin() + (s.cu_seqlens[i + 1] - last[i]) * width,
             in.q.begin() + s.cu_seqlens[i + 1] * width);
  }
  const int64_t tokens = cu_seqlens.back();
  const Expected e = expect(s, in);
  for (Isa isa : isas_to_test()) {
    Context context = testing::test_context(2, isa);
    Results whole;
    run_forward(context, s, in, whole);
    Guarded<float> out(tokens * width), lse(s.heads * tokens);
    attention(context, {q.data(), {tokens, s.heads, s.head_dim}}, pages.view(s),
              {cu_seqlens.data(), {static_cast<int64_t>(cu_seqlens.size())}}, static_cast<float>(s.scale), s.window,
              {out.get(), {tokens, s.heads, s.head_dim}}, {lse.get(), {s.heads, tokens}});
    EXPECT_TRUE(out.intact() && lse.intact());
    for (size_t i = 0; i < last.size(); ++i) {
      const int64_t end = s.cu_seqlens[i + 1], first = end - last[i];
      SCOPED_TRACE(std::string(isa_name(isa)) + ", sequence " + std::to_string(i));
      if (last[i] * s.heads / s.kv_heads > 8) {
        EXPECT_EQ(rows(out.values(), width, cu_seqlens[i], cu_seqlens[i + 1]), rows(whole.out, width, first, end));
        continue;
      }
      testing::expect_close(
          rows(out.values(), width, cu_seqlens[i], cu_seqlens[i + 1]), rows(e.out, width, first, end),
          [&](int64_t at) { return e.out_tolerance[first * width + at]; }, "out");
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t n = 0; n < last[i]; ++n) {
          const int64_t at = h * s.tokens() + first + n;
          EXPECT_TRUE(testing::is_close(lse.get()[h * tokens + cu_seqlens[i] + n], e.lse[at], e.lse_tolerance[at]));
        }
      }
    }
  }
}

TEST(Attention, PagesGiveWhatFlatKeysGive) {
  for (int64_t page_size : {1, 16, 100, 1000}) {
    compare_pages(make_shape({150, 1, 40}, 4, 2, 8), {150, 1, 40}, page_size);
    compare_pages(make_shape({150, 1, 40}, 4, 2, 8), {1, 1, 1}, page_size);
    compare_pages(make_shape({150, 90, 40}, 4, 1, 12), {30, 0, 7}, page_size);
    compare_pages(make_shape({150, 90, 40}, 2, 2, 12, 20), {30, 2, 7}, page_size);
    compare_pages(make_shape({300, 129, 128}, 8, 2, 64), {1, 2, 1}, page_size);
    compare_pages(make_shape({270, 17, 140}, 3, 1, 83, 130), {2, 1, 2}, page_size);
  }
}

/// One query of a sequence of very many keys.
TEST(Attention, FewRowsOverManyPages) {
  constexpr int64_t kKeys = 9000, kHeads = 4, kDim = 12;
  AttentionShape s = make_shape({kKeys}, kHeads, 2, kDim);
  const Inputs in = make_inputs(s);
  const Pages pages(s, in, 64);
  const auto q = testing::widen<double>(in.q), k = testing::widen<double>(in.k), v = testing::widen<double>(in.v);
  const int32_t cu_seqlens[2] = {0, 1};
  const std::vector<float> last = rows(in.q, kHeads * kDim, kKeys - 1, kKeys);
  for (const int64_t window : {0, 5000}) {
    s.window = window;
    for (Isa isa : isas_to_test()) {
      Context context = testing::test_context(2, isa);
      Guarded<float> out(kHeads * kDim), lse(kHeads);
      attention(context, {last.data(), {1, kHeads, kDim}}, pages.view(s), {cu_seqlens, {2}},
                static_cast<float>(s.scale), window, {out.get(), {1, kHeads, kDim}}, {lse.get(), {kHeads, 1}});
      for (int64_t h = 0; h < kHeads; ++h) {
        const std::vector<double> scores = reference::attention_scores(s, q, k, kKeys - 1, h);
        double sum = 0, of_values[kDim] = {}, magnitude[kDim] = {};
        for (size_t i = 0; i < scores.size(); ++i) {
          sum += std::exp(scores[i]);
          for (int64_t d = 0; d < kDim; ++d) {
            const double term = std::exp(scores[i]) * v[s.kv_at(s.first_key(kKeys - 1) + i, h) + d];
            of_values[d] += term;
            magnitude[d] += std::abs(term);
          }
        }
        // Scores of a few units are off by 4 u (|s| + sqrt(dim) sum |q k|), below 100 u here.
        const double root = std::sqrt(static_cast<double>(scores.size()));
        EXPECT_TRUE(testing::is_close(lse.get()[h], std::log(sum), kUnitFp32 * (100 + 4 * root)));
        for (int64_t d = 0; d < kDim; ++d) {
          const double tolerance = kUnitFp32 * (200 + 8 * root) * magnitude[d] / sum;
          EXPECT_TRUE(testing::is_close(out.get()[h * kDim + d], of_values[d] / sum, tolerance)) << h << ", " << d;
        }
      }
      EXPECT_TRUE(out.intact() && lse.intact());
    }
  }
}

// What is refused.

template <class Call>
void expect_refused(Call call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::shape);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  std::vector<float> x(10000);
  Context context = testing::test_context(1);
  const auto tensor = [&](int64_t n, int64_t h, int64_t d) { return View<float, 3>(x.data(), {n, h, d}); };
  std::vector<int32_t> cu{0, 2, 5}, table{0, 1, 2, 3}, lengths{2, 4};
  const auto flat = [&](View<const float, 3> q, View<const float, 3> k, View<const float, 3> v, View<float, 3> out,
                        View<float, 2> lse = {}) {
    attention(context, q, {.keys = k, .values = v}, {cu.data(), {3}}, 1, 0, out, lse);
  };
  const auto t = tensor(5, 4, 8), kv = tensor(5, 2, 8);
  flat(t, kv, kv, t);
  expect_refused([&] { flat(t, tensor(5, 3, 8), tensor(5, 3, 8), t); }, "multiple");
  expect_refused([&] { flat(tensor(5, 4, 0), tensor(5, 2, 0), tensor(5, 2, 0), tensor(5, 4, 0)); }, "head_dim");
  expect_refused([&] { flat(t, tensor(6, 2, 8), kv, t); }, "keys");
  expect_refused([&] { flat(t, kv, tensor(5, 2, 7), t); }, "values");
  expect_refused([&] { flat(t, kv, kv, tensor(5, 2, 8)); }, "out");
  expect_refused([&] { flat(t, kv, kv, t, {x.data(), {5, 4}}); }, "lse");
  expect_refused([&] { flat({x.data(), {5, 4, 8}, {32, 1, 4}}, kv, kv, t); }, "q [");
  const bool host_reads_memory = !testing::test_device();
  for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{0, 2, 6}, {-1, 2, 5}, {0, 6, 5}}) {
    if (!host_reads_memory) break;
    cu = wrong;
    expect_refused([&] { flat(t, kv, kv, t); }, "cu_seqlens");
  }
  cu = {0, 2, 5};

  const auto paged = [&](int64_t rows) {
    attention(context, t, {tensor(rows, 2, 8), tensor(rows, 2, 8), {table.data(), {2, 2}}, {lengths.data(), {2}}, 2},
              {cu.data(), {3}}, 1, 0, t, {});
  };
  paged(8);
  if (host_reads_memory) {
    expect_refused([&] { paged(7); }, "outside");
    lengths = {2, 2};
    expect_refused([&] { paged(8); }, "more queries");
    lengths = {2, 5};
    expect_refused([&] { paged(8); }, "more keys");
    lengths = {2, 4};
    table[3] = -1;
    expect_refused([&] { paged(8); }, "outside");
  }

  const auto backward = [&](View<const float, 3> d_out, View<float, 3> dk, View<float, 2> delta) {
    attention_backward(context, d_out, t, kv, kv, t, {x.data(), {4, 5}}, {cu.data(), {3}}, 1, 0, t, dk, kv, delta);
  };
  expect_refused([&] { backward(tensor(4, 4, 8), kv, {x.data(), {4, 5}}); }, "d_out");
  expect_refused([&] { backward(t, tensor(5, 1, 8), {x.data(), {4, 5}}); }, "dk");
  expect_refused([&] { backward(t, kv, {x.data(), {4, 4}}); }, "delta");
}

TEST(Attention, NoTokensAreNoWork) {
  const AttentionShape s = make_shape({0, 0}, 2, 1, 8);
  Context context = testing::test_context(2);
  run(context, s, make_inputs(s));
}

/// FLOPs and bytes that a profile has of `run`.
OperationCost cost_of(Context& context, const std::function<void()>& run) {
  OperationProfile profile;
  context.set_profile(&profile);
  run();
  context.set_profile(nullptr);
  OperationCost cost;
  for (const auto& [name, totals] : profile.totals()) {
    EXPECT_EQ(totals.calls, 1) << name;
    cost.flops += totals.flops;
    cost.bytes += totals.bytes;
  }
  return cost;
}

/// Counted pair by pair, of the last `queries` of `keys` tokens.
double pairs_seen(int64_t queries, int64_t keys, int64_t window) {
  int64_t pairs = 0;
  for (int64_t i = keys - queries; i < keys; ++i) {
    for (int64_t j = 0; j <= i; ++j) pairs += window == 0 || j > i - window ? 1 : 0;
  }
  return static_cast<double>(pairs);
}

TEST(Attention, WhatItHasToDoIsCountedAlikeOnEveryDevice) {
  Context context = testing::test_context(1);
  const int64_t heads = 4, kv_heads = 2, d = 8, rows = 64;
  std::vector<float> x(rows * heads * d), delta(heads * rows);
  const std::vector<int32_t> cu{0, 3, 3, 20, 21};
  const int64_t N = cu.back(), S = std::ssize(cu) - 1;
  const auto tensor = [&](int64_t n, int64_t h) { return View<float, 3>(x.data(), {n, h, d}); };
  const View<const int32_t, 1> bounds(cu.data(), {S + 1});
  for (const int64_t window : {0, 1, 5, 100}) {
    double pairs = 0;
    for (int64_t s = 0; s < S; ++s) pairs += pairs_seen(cu[s + 1] - cu[s], cu[s + 1] - cu[s], window);
    const OperationCost forward = cost_of(context, [&] {
      attention(context, tensor(N, heads), {.keys = tensor(N, kv_heads), .values = tensor(N, kv_heads)}, bounds, 1,
                window, tensor(N, heads), {});
    });
    EXPECT_EQ(forward.flops, 4 * pairs * heads * d);
    EXPECT_EQ(forward.bytes, 4 * (2 * N * heads * d + 2 * N * kv_heads * d));
    const OperationCost backward = cost_of(context, [&] {
      const View<float, 2> of_rows(delta.data(), {heads, N});
      attention_backward(context, tensor(N, heads), tensor(N, heads), tensor(N, kv_heads), tensor(N, kv_heads),
                         tensor(N, heads), of_rows, bounds, 1, window, tensor(N, heads), tensor(N, kv_heads),
                         tensor(N, kv_heads), of_rows);
    });
    EXPECT_EQ(backward.flops, 10 * pairs * heads * d);
    EXPECT_EQ(backward.bytes, 4 * (4 * N * heads * d + 4 * N * kv_heads * d));
  }
  const std::vector<int32_t> pages(4 * S, 0), lengths{5, 0, 30, 7};
  double pairs = 0, keys = 0;
  for (int64_t s = 0; s < S; ++s) {
    pairs += pairs_seen(cu[s + 1] - cu[s], lengths[s], 6);
    keys += lengths[s];
  }
  const OperationCost paged = cost_of(context, [&] {
    attention(context, tensor(N, heads),
              {.keys = tensor(rows, kv_heads),
               .values = tensor(rows, kv_heads),
               .page_table = {pages.data(), {S, 4}},
               .kv_lengths = {lengths.data(), {S}},
               .page_size = 8},
              bounds, 1, 6, tensor(N, heads), {});
  });
  EXPECT_EQ(paged.flops, 4 * pairs * heads * d);
  EXPECT_EQ(paged.bytes, 4 * (2 * N * heads * d + 2 * keys * kv_heads * d));
}

TEST(Attention, MemoryIsThatOfTheThreads) {
  EXPECT_EQ(attention_memory(Context(3), 64), 3 * attention_memory(Context(1), 64));
  EXPECT_LT(attention_memory(Context(1), 128), 800 << 10);
}

/// On a CPU.
TEST(Attention, ScratchIsTheContextsAndMadeOnce) {
  const AttentionShape s = make_shape({40}, 2, 1, 12);
  const Inputs in = make_inputs(s);
  for (Isa isa : isas_to_test()) {
    Context context(2, isa);
    std::thread([&] { run(context, s, in); }).join();
    EXPECT_EQ(context.scratch_bytes(), attention_memory(context, 12)) << isa_name(isa);
    const void* kept = context.scratch(1);
    run(context, s, in);
    EXPECT_EQ(context.scratch(1), kept) << isa_name(isa);
  }
}

}  // namespace
}  // namespace keel
