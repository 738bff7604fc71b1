// Attention in bf16 on a device, against the reference.

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "keel/kernels/attention/attention.h"
#include "keel/kernels/attention/attention_test_support.h"
#include "support/bf16_matrix.h"

namespace keel {
namespace {

using namespace attention_testing;
using testing::kUnitBf16;
using testing::rounded;
using testing::to_bf16;

Inputs make_bf16_inputs(const AttentionShape& s) {
  const Inputs in = make_inputs(s);
  return {rounded(in.q), rounded(in.k), rounded(in.v), rounded(in.d_out)};
}

/// What fp32 may do, and bf16: each output is rounded once; so are p and dS as operands; so is `out`, which D comes from.
Expected expect_bf16(const AttentionShape& s, const Inputs& in) {
  Expected e = expect(s, in);
  const auto q = testing::widen<double>(in.q), k = testing::widen<double>(in.k), v = testing::widen<double>(in.v),
             d_out = testing::widen<double>(in.d_out);
  const auto add_rounding = [](const std::vector<double>& y, std::vector<double>& tolerance) {
    for (size_t i = 0; i < y.size(); ++i) tolerance[i] += kUnitBf16 * std::abs(y[i]);
  };
  add_rounding(e.out, e.out_tolerance);
  add_rounding(e.dq, e.dq_tolerance);
  add_rounding(e.dk, e.dk_tolerance);
  add_rounding(e.dv, e.dv_tolerance);
  for (int64_t n = 0; n < s.tokens(); ++n) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t row = s.q_at(n, h), first = s.first_key(n);
      const std::vector<double> scores = reference::attention_scores(s, q, k, n, h);
      const double lse = e.lse[h * s.tokens() + n], delta = dot(&d_out[row], &e.out[row], s.head_dim);
      const double delta_error = kUnitBf16 * sum_of_magnitudes(&d_out[row], &e.out[row], s.head_dim);
      for (size_t i = 0; i < scores.size(); ++i) {
        const int64_t key = s.kv_at(first + static_cast<int64_t>(i), h);
        const double p = std::exp(scores[i] - lse);
        const double ds_error =
            kUnitBf16 * std::abs(p * (dot(&d_out[row], &v[key], s.head_dim) - delta)) + p * delta_error;
        for (int64_t d = 0; d < s.head_dim; ++d) {
          e.out_tolerance[row + d] += kUnitBf16 * p * std::abs(v[key + d]);
          e.dv_tolerance[key + d] += kUnitBf16 * p * std::abs(d_out[row + d]);
          e.dq_tolerance[row + d] += s.scale * ds_error * std::abs(k[key + d]);
          e.dk_tolerance[key + d] += s.scale * ds_error * std::abs(q[row + d]);
        }
      }
    }
  }
  return e;
}

/// [N, heads, head_dim] with `pad` elements after each row and `misalign` before the first.
class Tensor {
 public:
  Tensor(int64_t N, int64_t heads, int64_t head_dim, int64_t pad, int64_t misalign = 0)
      : N_(N),
        heads_(heads),
        head_dim_(head_dim),
        width_(heads * head_dim),
        pad_(pad),
        memory_(N * (width_ + pad), misalign) {}
  Tensor(const std::vector<float>& values, int64_t heads, int64_t head_dim, int64_t pad, int64_t misalign = 0)
      : Tensor(std::ssize(values) / (heads * head_dim), heads, head_dim, pad, misalign) {
    for (int64_t i = 0; i < N_ * width_; ++i) at(i) = to_bf16(values[i]).bits;
  }
  View<Bf16, 3> view() {
    return {reinterpret_cast<Bf16*>(memory_.get()), {N_, heads_, head_dim_}, {width_ + pad_, head_dim_, 1}};
  }
  std::vector<float> values() {
    std::vector<float> dense;
    for (int64_t i = 0; i < N_ * width_; ++i) dense.push_back(widened(Bf16{at(i)}));
    return dense;
  }
  void expect_intact() {
    EXPECT_TRUE(memory_.intact());
    for (int64_t i = 0; i < N_ * (width_ + pad_); ++i) {
      if (i % (width_ + pad_) >= width_) {
        ASSERT_EQ(memory_.get()[i], 0) << "the gap of row " << i / (width_ + pad_);
      }
    }
  }

 private:
  uint16_t& at(int64_t i) { return memory_.get()[i / width_ * (width_ + pad_) + i % width_]; }
  int64_t N_, heads_, head_dim_, width_, pad_;
  Guarded<uint16_t> memory_;
};

template <class T>
View<const T, 1> flat(const std::vector<T>& v) {
  return {v.data(), {std::ssize(v)}};
}

/// Rows off the grid of 16 bytes do not go to tensor cores.
struct Layout {
  int64_t pad = 8, misalign = 0;
};

Results run_bf16(Context& ctx, const AttentionShape& s, const Inputs& in, const Expected& e, const Layout& layout) {
  const auto [pad, misalign] = layout;
  const auto tensor = [&](const std::vector<float>& values, int64_t heads) {
    return Tensor(values, heads, s.head_dim, pad, misalign);
  };
  Tensor q = tensor(in.q, s.heads), k = tensor(in.k, s.kv_heads), v = tensor(in.v, s.kv_heads);
  Tensor d_out = tensor(in.d_out, s.heads), exact_out = tensor({e.out.begin(), e.out.end()}, s.heads);
  Tensor out(s.tokens(), s.heads, s.head_dim, pad, misalign), dq(s.tokens(), s.heads, s.head_dim, pad, misalign);
  Tensor dk(s.tokens(), s.kv_heads, s.head_dim, pad, misalign), dv(s.tokens(), s.kv_heads, s.head_dim, pad, misalign);
  Guarded<float> lse(s.heads * s.tokens()), delta(s.heads * s.tokens());
  const std::vector<float> exact_lse(e.lse.begin(), e.lse.end());
  const View<const int32_t, 1> cu_seqlens = flat(s.cu_seqlens);
  const auto scale = static_cast<float>(s.scale);
  const std::array<int64_t, 2> per_row{s.heads, s.tokens()};
  attention(ctx, q.view(), {.keys = k.view(), .values = v.view(), .page_table = {}, .kv_lengths = {}}, cu_seqlens,
            scale, s.window, out.view(), {lse.get(), per_row});
  attention_backward(ctx, d_out.view(), q.view(), k.view(), v.view(), exact_out.view(), {exact_lse.data(), per_row},
                     cu_seqlens, scale, s.window, dq.view(), dk.view(), dv.view(), {delta.get(), per_row});
  ctx.synchronize();
  for (Tensor* tensor : {&q, &k, &v, &d_out, &out, &dq, &dk, &dv}) tensor->expect_intact();
  EXPECT_TRUE(lse.intact() && delta.intact());
  return {out.values(), lse.values(), dq.values(), dk.values(), dv.values()};
}

class DeviceAttentionBf16 : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = testing::test_device();
    if (!device) GTEST_SKIP() << "of a GPU";
    ctx_.emplace(*device, 1);
  }

  void compare(const AttentionShape& s, const Layout& layout = {}) {
    SCOPED_TRACE(describe(s) + ", pad " + std::to_string(layout.pad));
    const Inputs in = make_bf16_inputs(s);
    const Expected e = expect_bf16(s, in);
    const Results r = run_bf16(*ctx_, s, in, e, layout);
    EXPECT_TRUE(run_bf16(*ctx_, s, in, e, layout) == r) << "other bits the second time";
    const auto within = [](const std::vector<double>& tolerance) { return [&](int64_t i) { return tolerance[i]; }; };
    testing::expect_close(r.out, e.out, within(e.out_tolerance), "out");
    testing::expect_close(r.lse, e.lse, within(e.lse_tolerance), "lse");
    testing::expect_close(r.dq, e.dq, within(e.dq_tolerance), "dq");
    testing::expect_close(r.dk, e.dk, within(e.dk_tolerance), "dk");
    testing::expect_close(r.dv, e.dv, within(e.dv_tolerance), "dv");
  }

  std::optional<Context> ctx_;
};

TEST_F(DeviceAttentionBf16, HeadDimensionsOfTensorCores) {
  for (int64_t head_dim : {8, 32, 48, 64, 80, 96, 112, 128, 136, 192, 256}) {
    compare(make_shape({70, 5}, 2, 1, head_dim));
    compare(make_shape({133}, 1, 1, head_dim, 40));
  }
}

TEST_F(DeviceAttentionBf16, OtherHeadDimensionsAndRows) {
  for (int64_t head_dim : {1, 7, 33, 42, 76}) compare(make_shape({37, 70}, 2, 1, head_dim));
  compare(make_shape({37, 70}, 2, 1, 64), {.pad = 5, .misalign = 1});
  compare(make_shape({40}, 1, 1, 264));
}

TEST_F(DeviceAttentionBf16, LengthsAroundTiles) {
  for (int32_t length : {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257}) {
    compare(make_shape({length}, 1, 1, 32));
  }
}

TEST_F(DeviceAttentionBf16, ManySequencesAndGroups) {
  compare(make_shape({0, 5, 0, 0, 64, 1, 0}, 4, 2, 32));
  compare(make_shape({129, 3, 128, 31}, 2, 2, 64));
  compare(make_shape({50, 20}, 6, 2, 32));
  compare(make_shape({33}, 5, 1, 128));
  compare(make_shape({3}, 150, 1, 32));
}

TEST_F(DeviceAttentionBf16, Windows) {
  for (int64_t window : {1, 2, 8, 33, 64, 65, 128, 1000}) compare(make_shape({150, 40}, 2, 1, 32, window));
  compare(make_shape({30}, 3, 1, 64, std::numeric_limits<int32_t>::max()));
}

TEST_F(DeviceAttentionBf16, OutputMayTakeThePlaceOfTheQueries) {
  for (int64_t head_dim : {40, 64}) {
    const AttentionShape s = make_shape({100, 33}, 4, 2, head_dim);
    const Inputs in = make_bf16_inputs(s);
    Tensor q(in.q, 4, head_dim, 8), k(in.k, 2, head_dim, 8), v(in.v, 2, head_dim, 8);
    Tensor out(s.tokens(), 4, head_dim, 8);
    for (const View<Bf16, 3>& to : {out.view(), q.view()}) {
      attention(*ctx_, q.view(), {.keys = k.view(), .values = v.view(), .page_table = {}, .kv_lengths = {}},
                flat(s.cu_seqlens), static_cast<float>(s.scale), s.window, to, {});
    }
    ctx_->synchronize();
    EXPECT_EQ(q.values(), out.values());
  }
}

/// The last queries of sequences whose keys lie in pages of 16, last page first, give the bits that flat keys give or,
/// where they are few, what the reference gives.
TEST_F(DeviceAttentionBf16, Pages) {
  constexpr int64_t kPage = 16;
  for (int64_t head_dim : {64, 128}) {
    const AttentionShape s = make_shape({300, 90, 40}, 4, 2, head_dim);
    const Inputs in = make_bf16_inputs(s);
    const Expected e = expect_bf16(s, in);
    const Results whole = run_bf16(*ctx_, s, in, e, {});
    const std::vector<int32_t> last{1, 30, 4}, cu{0, 1, 31, 35}, lengths{300, 90, 40};
    const int64_t pages = 19, width = 2 * head_dim;
    std::vector<int32_t> table(3 * pages, -1);
    std::vector<float> keys(3 * pages * kPage * width, std::numeric_limits<float>::quiet_NaN()), values = keys, q;
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t t = 0; t < lengths[i]; ++t) {
        const int64_t page = 3 * pages - 1 - (i * pages + t / kPage);
        table[i * pages + t / kPage] = static_cast<int32_t>(page);
        const int64_t from = (s.cu_seqlens[i] + t) * width, to = (page * kPage + t % kPage) * width;
        std::copy_n(in.k.begin() + from, width, keys.begin() + to);
        std::copy_n(in.v.begin() + from, width, values.begin() + to);
      }
      q.insert(q.end(), in.q.begin() + (s.cu_seqlens[i + 1] - last[i]) * 2 * width,
               in.q.begin() + s.cu_seqlens[i + 1] * 2 * width);
    }
    Tensor queries(q, 4, head_dim, 0), k(keys, 2, head_dim, 0), v(values, 2, head_dim, 0), out(35, 4, head_dim, 0);
    Guarded<float> lse(4 * 35);
    const KeysValues paged{.keys = k.view(),
                           .values = v.view(),
                           .page_table = {table.data(), {3, pages}},
                           .kv_lengths = flat(lengths),
                           .page_size = kPage};
    attention(*ctx_, queries.view(), paged, flat(cu), static_cast<float>(s.scale), s.window, out.view(),
              {lse.get(), {4, 35}});
    ctx_->synchronize();
    const std::vector<float> got = out.values();
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t at = cu[i] * 2 * width; at < cu[i + 1] * 2 * width; ++at) {
        const int64_t flat = (s.cu_seqlens[i + 1] - cu[i + 1]) * 2 * width + at;
        if (last[i] > 4) {
          ASSERT_EQ(got[at], whole.out[flat]) << "sequence " << i << ", element " << at;
        } else {
          ASSERT_TRUE(testing::is_close(got[at], e.out[flat], e.out_tolerance[flat])) << i << ", " << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace keel
