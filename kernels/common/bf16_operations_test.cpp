// On a device every operation on matrices in bf16 gives what it gives for the same numbers in fp32, rounded once; and what
// it gives in fp32 beside, sums and scalars, has the same bits. (Products: matmul_bf16_test.cpp; attention:
// attention_bf16_test.cpp.)

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/adamw/adamw.h"
#include "keel/kernels/bias/bias.h"
#include "keel/kernels/cast/cast.h"
#include "keel/kernels/column_scale/column_scale.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/embedding/embedding.h"
#include "keel/kernels/kv_store/kv_store.h"
#include "keel/kernels/layer_norm/layer_norm.h"
#include "keel/kernels/linear/linear.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/moments/moments.h"
#include "keel/kernels/rms_norm/rms_norm.h"
#include "keel/kernels/rope/rope.h"
#include "keel/kernels/seam/seam.h"
#include "keel/kernels/swiglu/swiglu.h"
#include "support/bf16_matrix.h"
#include "support/errors.h"
#include "support/guarded_matrix.h"
#include "support/test_device.h"

namespace keel {
namespace {

using testing::Bf16Matrix;
using testing::GuardedMatrix;
using testing::Random;
using testing::rounded;

struct Size {
  int64_t rows, d, pad = 0, misalign = 0;
};
/// Rows taken one column at a time and four at a time, in registers and in loops.
const Size kSizes[] = {{1, 1},    {3, 15, 1, 1}, {130, 257, 5, 7}, {3, 8},    {65, 64, 4},
                       {17, 132}, {2, 520},      {2, 1028},        {1, 4100}, {2, 8196}};

std::string name_of(const Size& s) {
  return std::to_string(s.rows) + " x " + std::to_string(s.d);
}

View<float, 1> flat(std::vector<float>& v) {
  return {v.data(), {std::ssize(v)}};
}

/// What an operation gave: matrices that it was given in either type, and all else.
struct Results {
  std::vector<std::vector<float>> matrices, floats;
};

class DeviceBf16Operations : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = testing::test_device();
    if (!device) GTEST_SKIP() << "of a GPU";
    ctx_.emplace(*device, 1);
  }
  Context& ctx() { return *ctx_; }

  /// run(type, size): with matrices made as `type` says, GuardedMatrix or Bf16Matrix.
  template <class Run>
  void expect_one_rounding(Run run) {
    for (const Size& size : kSizes) {
      SCOPED_TRACE(name_of(size));
      const Results wide = run(std::type_identity<GuardedMatrix>(), size);
      const Results narrow = run(std::type_identity<Bf16Matrix>(), size);
      ASSERT_EQ(wide.matrices.size(), narrow.matrices.size());
      for (size_t i = 0; i < wide.matrices.size(); ++i) EXPECT_EQ(narrow.matrices[i], rounded(wide.matrices[i])) << i;
      EXPECT_EQ(narrow.floats, wide.floats);
    }
  }

  std::optional<Context> ctx_;
};

/// Numbers that bf16 holds.
std::vector<float> numbers(const Size& s, uint64_t seed) {
  return rounded(Random(seed).normals(s.rows * s.d));
}
std::vector<float> vector_of(const Size& s, uint64_t seed) {
  return Random(seed).normals(s.d, 1, 0.3);
}

template <class M>
M made(const Size& s, uint64_t seed) {
  return M(s.rows, s.d, numbers(s, seed), s.pad, s.misalign);
}
template <class M>
M empty(const Size& s) {
  return M(s.rows, s.d, s.pad, s.misalign);
}
/// Of a stream, which is fp32 always.
GuardedMatrix stream(const Size& s, uint64_t seed) {
  return GuardedMatrix(s.rows, s.d, Random(seed).normals(s.rows * s.d), s.pad, s.misalign);
}

TEST_F(DeviceBf16Operations, SeamForward) {
  for (const bool outer : {false, true}) {
    for (const bool inner : {false, true}) {
      expect_one_rounding([&](auto type, const Size& s) {
        using M = typename decltype(type)::type;
        GuardedMatrix x = stream(s, 1), y = empty<GuardedMatrix>(s);
        M F = made<M>(s, 2), u = empty<M>(s), again = empty<M>(s);
        std::vector<float> a{3}, b{0.5F}, g_o = vector_of(s, 3), g_i = vector_of(s, 4), r_o(s.rows), r_i(s.rows);
        SeamForward seam{.x = x.view(), .F = F.view(), .a = flat(a), .b = flat(b)};
        if (outer) seam.outer_gain = flat(g_o), seam.outer_r = flat(r_o);
        if (inner) seam.inner_gain = flat(g_i), seam.inner_r = flat(r_i);
        seam.inner_factor = inner ? 0.7F : 1;
        seam.y = y.view();
        const bool is_bf16 = std::is_same_v<M, Bf16Matrix>;
        if (inner || is_bf16) seam.u = u.view();
        seam_forward(ctx(), seam);
        if (inner) seam_inner_again(ctx(), y.view(), flat(g_i), seam.inner_factor, flat(r_i), again.view());
        ctx().synchronize();
        EXPECT_TRUE(u.intact() && y.intact() && again.intact());
        // Without an inner norm u is y, which in fp32 needs no copy.
        const std::vector<float> input = inner || is_bf16 ? u.values() : y.values();
        return Results{{input, inner ? again.values() : input}, {y.values(), r_o, r_i}};
      });
    }
  }
}

TEST_F(DeviceBf16Operations, SeamWithoutBranch) {
  expect_one_rounding([&](auto type, const Size& s) {
    using M = typename decltype(type)::type;
    GuardedMatrix x = stream(s, 1);
    M u = empty<M>(s);
    std::vector<float> a{1}, b{0}, g_i = vector_of(s, 4), r_i(s.rows);
    SeamForward seam{.x = x.view(), .F = {}, .a = flat(a), .b = flat(b)};
    seam.inner_gain = flat(g_i);
    seam.inner_r = flat(r_i);
    seam.y = x.view();
    seam.u = u.view();
    seam_forward(ctx(), seam);
    ctx().synchronize();
    EXPECT_TRUE(u.intact());
    return Results{{u.values()}, {x.values(), r_i}};
  });
}

TEST_F(DeviceBf16Operations, SeamBackward) {
  struct Form {
    bool outer, inner, layer = false, scales = false;
  };
  for (const Form& form : {Form{true, true}, Form{true, false}, Form{false, true}, Form{false, false},
                           Form{true, false, true}, Form{true, true, false, true}, Form{false, false, false, true}}) {
    SCOPED_TRACE((form.outer ? "outer " : "") + std::string(form.inner ? "inner " : "") + (form.layer ? "layer " : "") +
                 (form.scales ? "scales" : ""));
    expect_one_rounding([&](auto type, const Size& s) {
      using M = typename decltype(type)::type;
      GuardedMatrix x = stream(s, 1), y = stream(s, 5), Ds = stream(s, 6), dx = empty<GuardedMatrix>(s);
      M F = made<M>(s, 2), Du = made<M>(s, 7), dF = empty<M>(s);
      std::vector<float> a{3}, b{0.5F}, g_o = vector_of(s, 3), g_i = vector_of(s, 4), bias = vector_of(s, 8);
      std::vector<float> skip = vector_of(s, 11), branch = vector_of(s, 12), r_o = Random(9).normals(s.rows, 1, 0.1),
                         r_i = Random(10).normals(s.rows, 1, 0.1), mean = Random(13).normals(s.rows, 0, 0.1);
      std::vector<float> d_g_o(s.d), d_g_i(s.d), d_bias(s.d), d_skip(s.d), d_branch(s.d), d_a(1), d_b(1);
      SeamBackward seam{.x = x.view(), .F = F.view(), .y = y.view(), .a = flat(a), .b = flat(b)};
      if (form.outer) seam.outer_gain = flat(g_o), seam.outer_r = flat(r_o), seam.d_outer_gain = flat(d_g_o);
      if (form.layer) seam.outer_bias = flat(bias), seam.outer_mean = flat(mean), seam.d_outer_bias = flat(d_bias);
      if (form.inner) seam.inner_gain = flat(g_i), seam.inner_r = flat(r_i), seam.d_inner_gain = flat(d_g_i);
      if (form.scales) {
        seam.skip_scale = flat(skip), seam.d_skip_scale = flat(d_skip);
        seam.branch_scale = flat(branch), seam.d_branch_scale = flat(d_branch);
        seam.d_a = flat(d_a), seam.d_b = flat(d_b);
      }
      seam.Ds = Ds.view();
      seam.Du = Du.view();
      seam.dx = dx.view();
      seam.dF = dF.view();
      GuardedMatrix partial(chunk_count(s.rows), seam_partial_columns(s.d, seam_has_vectors(seam)));
      seam.partial = partial.view();
      seam_backward(ctx(), seam);
      ctx().synchronize();
      EXPECT_TRUE(dF.intact() && dx.intact());
      return Results{{dF.values()}, {dx.values(), d_g_o, d_g_i, d_bias, d_skip, d_branch, d_a, d_b}};
    });
  }
}

TEST_F(DeviceBf16Operations, RmsNorm) {
  for (const bool accumulate : {false, true}) {
    expect_one_rounding([&](auto type, const Size& s) {
      using M = typename decltype(type)::type;
      M x = made<M>(s, 1), y = empty<M>(s), dy = made<M>(s, 2), dx = made<M>(s, 3);
      GuardedMatrix partial(chunk_count(s.rows), s.d);
      std::vector<float> w = vector_of(s, 4), r(s.rows), dw(s.d);
      rms_norm(ctx(), x.view(), flat(w), 1e-5F, y.view(), flat(r));
      rms_norm_backward(ctx(), dy.view(), x.view(), flat(w), flat(r), dx.view(), accumulate, flat(dw), partial.view());
      ctx().synchronize();
      EXPECT_TRUE(y.intact() && dx.intact());
      return Results{{y.values(), dx.values()}, {r, dw}};
    });
  }
}

/// From a stream to a branch's input and back, and within a branch.
TEST_F(DeviceBf16Operations, LayerNorm) {
  for (const bool of_stream : {false, true}) {
    expect_one_rounding([&](auto type, const Size& s) {
      using M = typename decltype(type)::type;
      using X = GuardedMatrix;
      X stream_x = stream(s, 1), stream_dx = stream(s, 3);
      M branch_x = made<M>(s, 1), branch_dx = empty<M>(s), y = empty<M>(s), dy = made<M>(s, 2);
      const AnyView<void, 2> x = of_stream ? AnyView<void, 2>(stream_x.view()) : branch_x.view();
      const AnyView<void, 2> dx = of_stream ? AnyView<void, 2>(stream_dx.view()) : branch_dx.view();
      GuardedMatrix partial(chunk_count(s.rows), 2 * s.d);
      std::vector<float> w = vector_of(s, 4), bias = vector_of(s, 5), r(s.rows), mean(s.rows), dw(s.d), dbias(s.d);
      layer_norm(ctx(), x, flat(w), flat(bias), 0.7F, 1e-5F, y.view(), flat(r), flat(mean));
      layer_norm_backward(ctx(), dy.view(), x, flat(w), flat(r), flat(mean), 0.7F, dx, of_stream, flat(dw), flat(dbias),
                          partial.view());
      ctx().synchronize();
      EXPECT_TRUE(y.intact() && branch_dx.intact() && stream_dx.intact());
      Results results{{y.values()}, {r, mean, dw, dbias}};
      (of_stream ? results.floats : results.matrices).push_back(of_stream ? stream_dx.values() : branch_dx.values());
      return results;
    });
  }
}

TEST_F(DeviceBf16Operations, ColumnScale) {
  for (const bool of_stream : {false, true}) {
    expect_one_rounding([&](auto type, const Size& s) {
      using M = typename decltype(type)::type;
      GuardedMatrix stream_x = stream(s, 1), partial(chunk_count(s.rows), s.d);
      M branch_x = made<M>(s, 1), y = empty<M>(s), dy = made<M>(s, 2), dx = empty<M>(s);
      const AnyView<void, 2> x = of_stream ? AnyView<void, 2>(stream_x.view()) : branch_x.view();
      std::vector<float> scale = vector_of(s, 4), d_scale(s.d);
      column_scale(ctx(), x, flat(scale), y.view());
      column_scale_backward(ctx(), dy.view(), x, flat(scale), dx.view(), flat(d_scale), partial.view());
      ctx().synchronize();
      EXPECT_TRUE(y.intact() && dx.intact());
      return Results{{y.values(), dx.values()}, {d_scale}};
    });
  }
}

TEST_F(DeviceBf16Operations, Swiglu) {
  expect_one_rounding([&](auto type, const Size& s) {
    using M = typename decltype(type)::type;
    M gate = made<M>(s, 1), up = made<M>(s, 2), h = empty<M>(s), kept_gate = empty<M>(s), kept_up = empty<M>(s);
    M dh = made<M>(s, 3), d_gate = empty<M>(s), d_up = empty<M>(s), again = empty<M>(s);
    swiglu(ctx(), gate.view(), up.view(), h.view(), kept_gate.view(), kept_up.view());
    swiglu_backward(ctx(), dh.view(), gate.view(), up.view(), d_gate.view(), d_up.view(), again.view());
    ctx().synchronize();
    for (M* matrix : {&h, &kept_gate, &kept_up, &d_gate, &d_up, &again}) EXPECT_TRUE(matrix->intact());
    return Results{{h.values(), kept_gate.values(), kept_up.values(), d_gate.values(), d_up.values(), again.values()},
                   {}};
  });
}

TEST_F(DeviceBf16Operations, Rope) {
  for (const RopeDirection direction : {RopeDirection::forward, RopeDirection::backward}) {
    for (const int64_t head_dim : {6, 8, 64}) {
      expect_one_rounding([&](auto type, const Size& given) {
        using M = typename decltype(type)::type;
        const Size s{given.rows, 3 * head_dim, given.pad, given.misalign};
        M x = made<M>(s, 1);
        GuardedMatrix cos = stream({20, head_dim / 2}, 2), sin = stream({20, head_dim / 2}, 3);
        std::vector<int32_t> positions;
        for (int64_t n = 0; n < s.rows; ++n) positions.push_back(static_cast<int32_t>(7 * n % 20));
        const AnyView<void, 3> heads = AnyView<void, 2>(x.view()).template reshaped<3>(
            0, {s.rows, 3, head_dim}, {x.view().stride(0), head_dim, 1});
        rope(ctx(), {positions.data(), {s.rows}}, cos.view(), sin.view(), heads, direction);
        ctx().synchronize();
        EXPECT_TRUE(x.intact());
        return Results{{x.values()}, {}};
      });
    }
  }
}

TEST_F(DeviceBf16Operations, Bias) {
  expect_one_rounding([&](auto type, const Size& s) {
    using M = typename decltype(type)::type;
    M y = made<M>(s, 1), dy = made<M>(s, 2);
    GuardedMatrix partial(chunk_count(s.rows), s.d);
    std::vector<float> b = vector_of(s, 3), db(s.d);
    add_bias(ctx(), flat(b), y.view());
    add_bias_backward(ctx(), dy.view(), flat(db), partial.view());
    ctx().synchronize();
    EXPECT_TRUE(y.intact());
    return Results{{y.values()}, {db}};
  });
}

TEST_F(DeviceBf16Operations, EmbeddingBackward) {
  expect_one_rounding([&](auto type, const Size& given) {
    using M = typename decltype(type)::type;
    const Size s{given.rows, given.d, 0, given.misalign};
    M dy = made<M>(s, 1);
    std::vector<int32_t> tokens;
    for (int64_t n = 0; n < s.rows; ++n) tokens.push_back(static_cast<int32_t>(n * n % 5));
    std::vector<float> table(5 * s.d, 0.25F);
    embedding_backward(ctx(), {tokens.data(), {s.rows}}, dy.view(), {table.data(), {5, s.d}});
    ctx().synchronize();
    return Results{{}, {table}};
  });
}

TEST_F(DeviceBf16Operations, KvStore) {
  expect_one_rounding([&](auto type, const Size& s) {
    using M = typename decltype(type)::type;
    M x = made<M>(s, 1), cache(s.rows + 3, s.d, s.pad, s.misalign);
    std::vector<int32_t> rows;
    for (int64_t n = 0; n < s.rows; ++n) rows.push_back(static_cast<int32_t>(s.rows + 2 - n));
    const auto heads = [&](M& m) {
      const AnyView<void, 2> all(m.view());
      return all.template reshaped<3>(0, {all.extent(0), 1, s.d}, {all.stride(0), s.d, 1});
    };
    kv_store(ctx(), heads(x), {rows.data(), {s.rows}}, heads(cache));
    ctx().synchronize();
    EXPECT_TRUE(cache.intact());
    std::vector<float> stored = cache.values();
    stored.erase(stored.begin(), stored.begin() + 3 * s.d);
    return Results{{stored}, {}};
  });
}

/// As the outputs of a decoder are picked for its head.
TEST_F(DeviceBf16Operations, Embedding) {
  expect_one_rounding([&](auto type, const Size& given) {
    using M = typename decltype(type)::type;
    const Size s{given.rows, given.d, 0, given.misalign};
    M table = made<M>(s, 1), y(s.rows + 2, s.d, 0, s.misalign);
    std::vector<int32_t> rows;
    for (int64_t n = 0; n < s.rows + 2; ++n) rows.push_back(static_cast<int32_t>(n * 3 % s.rows));
    embedding(ctx(), {rows.data(), {s.rows + 2}}, AnyView<const void, 2>(table.view()), y.view());
    ctx().synchronize();
    EXPECT_TRUE(y.intact());
    return Results{{y.values()}, {}};
  });
}

TEST_F(DeviceBf16Operations, Moments) {
  expect_one_rounding([&](auto type, const Size& s) {
    using M = typename decltype(type)::type;
    GuardedMatrix x = stream(s, 1);
    M y = made<M>(s, 2);
    std::vector<double> sums(3), partial(3 * chunk_count(s.rows * s.d, kMomentsChunk));
    moments(ctx(), x.view(), y.view(), {sums.data(), {3}}, {partial.data(), {std::ssize(partial) / 3, 3}});
    ctx().synchronize();
    return Results{{}, {{sums.begin(), sums.end()}}};
  });
}

/// A few rows by weights in bf16, as few_rows has them.
TEST_F(DeviceBf16Operations, LinearOfFewRows) {
  for (const int64_t rows : {1, 2, 3, 5, 12}) {
    for (const int64_t in : {64, 520, 37}) {
      SCOPED_TRACE(std::to_string(rows) + " of " + std::to_string(in));
      const Size of_x{rows, in}, of_w{51, in};
      GuardedMatrix x = made<GuardedMatrix>(of_x, 1), y(rows, 51), from_bf16(rows, 51);
      Bf16Matrix x_bf16 = made<Bf16Matrix>(of_x, 1), W = made<Bf16Matrix>(of_w, 2), y_bf16(rows, 51);
      const WeightMatrix weights = AnyView<const void, 2>(W.view());
      linear(ctx(), x.view(), weights, y.view());
      linear(ctx(), x_bf16.view(), weights, from_bf16.view());
      linear(ctx(), x_bf16.view(), weights, y_bf16.view());
      ctx().synchronize();
      EXPECT_EQ(from_bf16.values(), y.values());
      EXPECT_EQ(y_bf16.values(), rounded(y.values()));
      std::vector<float> bias = Random(3).normals(51), sums = y_bf16.values();
      linear(ctx(), x_bf16.view(), weights, y_bf16.view(), 0, flat(bias));
      ctx().synchronize();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += bias[i % 51];
      EXPECT_EQ(y_bf16.values(), rounded(sums));
    }
  }
}

TEST_F(DeviceBf16Operations, AdamwWritesWhatIsMultipliedBy) {
  for (const int64_t size : {1, 9000, 8195}) {
    for (const int64_t offset : {0, 3, 4}) {
      const int64_t all = offset + size + 5;
      std::vector<float> start = Random(1).normals(all), gradient = Random(2).normals(all), m(all), v(all);
      std::vector<float> w = start, w_alone = start, m_alone(all), v_alone(all);
      Bf16Matrix compute(1, all);
      StepScalars scalars{};
      scalars.learning_rate[0] = 0.1;
      scalars.bias_correction1 = scalars.bias_correction2 = scalars.grad_scale = 1;
      const AdamwSegment segment{.offset = offset, .size = size, .parameter_class = static_cast<ParameterClass>(0)};
      const auto step = [&](std::vector<float>& weights, std::vector<float>& first, std::vector<float>& second,
                            View<Bf16, 1> to) {
        adamw(ctx(), {&segment, 1}, 0.9, 0.95, {&scalars, {1}}, flat(gradient), flat(weights), flat(first),
              flat(second), to);
      };
      step(w_alone, m_alone, v_alone, {});
      step(w, m, v, {compute.view().data(), {all}});
      ctx().synchronize();
      EXPECT_TRUE(compute.intact());
      EXPECT_EQ(w, w_alone);
      std::vector<float> expected = rounded(w);  // of what lies outside nothing is written
      std::fill_n(expected.begin(), offset, 0.0F);
      std::fill(expected.begin() + offset + size, expected.end(), 0.0F);
      EXPECT_EQ(compute.values(), expected);
    }
  }
}

/// One of two matrices in another type; and on a CPU any in bf16.
TEST(Bf16OperationsRefused, TypesThatDisagree) {
  Context ctx = testing::test_context(1);
  GuardedMatrix wide(2, 8), other(2, 8), square(2, 2);
  Bf16Matrix narrow(2, 8);
  std::vector<float> w(8, 1), r(2);
  const auto expect_refused = [&](const std::string& what, const std::function<void()>& call) {
    testing::expect_error(ErrorKind::shape, what, call);
  };
  expect_refused("y is bf16, not fp32 as the other matrices",
                 [&] { rms_norm(ctx, wide.view(), flat(w), 1, narrow.view(), flat(r)); });
  expect_refused("up is bf16, not fp32 as the other matrices",
                 [&] { swiglu(ctx, wide.view(), narrow.view(), other.view()); });
  expect_refused("y is fp32, not bf16 as the other matrices",
                 [&] { column_scale(ctx, narrow.view(), flat(w), wide.view()); });
  expect_refused("B is fp32, not bf16 as the other matrices",
                 [&] { matmul(ctx, narrow.view(), wide.view(), square.view(), Transpose::b); });
  expect_refused("X is bf16, W is not", [&] { linear(ctx, narrow.view(), wide.view(), square.view()); });
  std::vector<int32_t> rows(2);
  expect_refused("Y is bf16, W is not", [&] {
    widen_rows(ctx, {rows.data(), {2}}, AnyView<const void, 2>(wide.view()), narrow.view());
  });
  if (testing::test_device()) {
    constexpr int64_t kTooWide = int64_t{1} << 31;
    return expect_refused("2147483648 columns are more than a GPU's kernels take", [&] {
      keel::narrow(ctx, View<const float, 2>(wide.view().data(), {1, kTooWide}),
                   View<Bf16, 2>(narrow.view().data(), {1, kTooWide}));
    });
  }
  expect_refused("Y is bf16, not fp32 on a CPU", [&] {
    widen_rows(ctx, {rows.data(), {2}}, AnyView<const void, 2>(narrow.view()), narrow.view());
  });
  expect_refused("y is bf16, not fp32 on a CPU", [&] { add_bias(ctx, flat(w), narrow.view()); });
  expect_refused("x is bf16, not fp32 on a CPU",
                 [&] { rms_norm(ctx, narrow.view(), flat(w), 1, narrow.view(), flat(r)); });
}

}  // namespace
}  // namespace keel
