#include "keel/kernels/swiglu/swiglu.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/cast/cast.h"
#include "keel/kernels/swiglu/swiglu_ref.h"
#include "support/complex_step.h"
#include "support/contexts.h"
#include "support/guarded_matrix.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::GuardedMatrix;
using testing::kUnitFp32;
using testing::Random;
using testing::widen;

/// Smallest subnormal fp32: results below the normal range are off by a few of it.
constexpr double kSmallest = 0x1p-149;

struct Case {
  int64_t rows, columns;
  int64_t pad = 0, misalign = 0;
  int64_t skew = 1;  ///< by how much the matrices differ in stride and start
};
/// Rows of which a device can take four columns at a time.
Case in_fours(int64_t rows, int64_t columns) {
  return {.rows = rows, .columns = columns, .skew = 0};
}
const Case kCases[] = {{1, 1},          {3, 15, 1, 1},  {2, 16},          {5, 17, 20, 3},   {7, 64, 64, 0},
                       {40, 500, 3, 5}, in_fours(3, 8), in_fours(70, 12), in_fours(2, 1028)};

struct Problem {
  explicit Problem(const Case& c) {
    Random random(static_cast<uint64_t>(17 * c.rows + c.columns));
    const int64_t n = c.rows * c.columns;
    gate = random.normals(n, 0, 3);
    // Where exp overflows or vanishes, and 0.
    const float special[] = {0, -0.0F, 20, -20, 90, -90, 110, -110, 1e4F, -1e4F};
    for (int64_t i = 0; i < n; i += 7) gate[i] = special[i / 7 % std::ssize(special)];
    up = random.normals(n);
    dh = random.normals(n);
  }
  std::vector<float> gate, up, dh;
};

TEST(SwigluReference, BackwardIsTheComplexStepOfForward) {
  Random random(2);
  const auto gate = widen<double>(random.normals(9, 0, 2)), up = widen<double>(random.normals(9)),
             dh = widen<double>(random.normals(9));
  using Complex = std::complex<double>;
  const auto loss = [&](const std::vector<Complex>& gate_at, const std::vector<Complex>& up_at) {
    Complex sum = 0;
    const auto h = reference::swiglu(gate_at, up_at);
    for (size_t i = 0; i < h.size(); ++i) sum += dh[i] * h[i];
    return sum;
  };
  const std::vector<Complex> fixed_gate(gate.begin(), gate.end()), fixed_up(up.begin(), up.end());
  const auto backward = reference::swiglu_backward(dh, gate, up);
  testing::expect_same_gradient(
      backward.d_gate, testing::complex_step_gradient(gate, [&](const auto& at) { return loss(at, fixed_up); }),
      "d_gate");
  testing::expect_same_gradient(
      backward.d_up, testing::complex_step_gradient(up, [&](const auto& at) { return loss(fixed_gate, at); }), "d_up");
}

/// Copies in bf16 are those of narrow(), with h as before or without it.
void expect_kept_in_bf16(Context& ctx, GuardedMatrix& gate, GuardedMatrix& up, const std::vector<float>& expected) {
  const int64_t rows = gate.view().extent(0), columns = gate.view().extent(1), n = rows * columns;
  const auto half = [&](std::vector<Bf16>& memory) { return View<Bf16, 2>(memory.data(), {rows, columns}); };
  const auto bits = [](const std::vector<Bf16>& values) {
    std::vector<uint16_t> list;
    for (const Bf16 value : values) list.push_back(value.bits);
    return list;
  };
  std::vector<Bf16> narrow_gate(n), narrow_up(n);
  narrow(ctx, gate.view(), half(narrow_gate));
  narrow(ctx, up.view(), half(narrow_up));
  for (const bool with_h : {true, false}) {
    std::vector<Bf16> kept_gate(n), kept_up(n);
    std::vector<float> h(n);
    swiglu(ctx, gate.view(), up.view(), with_h ? View<float, 2>(h.data(), {rows, columns}) : View<float, 2>(),
           half(kept_gate), half(kept_up));
    EXPECT_TRUE(bits(kept_gate) == bits(narrow_gate) && bits(kept_up) == bits(narrow_up));
    if (with_h) {
      EXPECT_EQ(h, expected) << "with copies in bf16";
    }
  }
}

void check_forward(const Case& c) {
  const Problem p(c);
  const auto expected = reference::swiglu(widen<double>(p.gate), widen<double>(p.up));
  // sigma within 3.5 ulp = 7 u, two products.
  const auto tolerance = [&](int64_t i) {
    return 9 * kUnitFp32 * std::abs(expected[i]) +
           4 * kSmallest * (1 + std::abs(static_cast<double>(p.gate[i]) * p.up[i]));
  };
  for_each_context([&](Context& ctx) {
    GuardedMatrix gate(c.rows, c.columns, p.gate, c.pad, c.misalign),
        up(c.rows, c.columns, p.up, c.pad + c.skew, c.misalign);
    GuardedMatrix h(c.rows, c.columns, c.pad, c.misalign + c.skew);
    swiglu(ctx, gate.view(), up.view(), h.view());
    testing::expect_close(h.values(), expected, tolerance, "h");
    EXPECT_TRUE(h.intact());
    GuardedMatrix kept_gate(c.rows, c.columns, c.pad, c.misalign),
        kept_up(c.rows, c.columns, c.pad + 3 * c.skew, c.misalign + c.skew);
    swiglu(ctx, gate.view(), up.view(), h.view(), kept_gate.view(), kept_up.view());
    testing::expect_close(h.values(), expected, tolerance, "h, with copies");
    EXPECT_TRUE(kept_gate.values() == p.gate && kept_up.values() == p.up);
    EXPECT_TRUE(kept_gate.intact() && kept_up.intact());
    GuardedMatrix only_gate(c.rows, c.columns), only_up(c.rows, c.columns);
    swiglu(ctx, gate.view(), up.view(), {}, only_gate.view(), only_up.view());
    EXPECT_TRUE(only_gate.values() == p.gate && only_up.values() == p.up) << "without h";
    expect_kept_in_bf16(ctx, gate, up, h.values());
    GuardedMatrix same_up(c.rows, c.columns, p.up, c.pad, c.misalign);
    swiglu(ctx, gate.view(), same_up.view(), same_up.view());
    testing::expect_close(same_up.values(), expected, tolerance, "h is up");
    swiglu(ctx, gate.view(), up.view(), gate.view());
    testing::expect_close(gate.values(), expected, tolerance, "h is gate");
    EXPECT_TRUE(gate.intact() && same_up.intact());
  });
}

TEST(Swiglu, ForwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.columns));
    check_forward(c);
  }
}

void check_backward(const Case& c) {
  const Problem p(c);
  const auto dh_d = widen<double>(p.dh), gate_d = widen<double>(p.gate), up_d = widen<double>(p.up);
  const auto expected = reference::swiglu_backward(dh_d, gate_d, up_d);
  const auto gate_tolerance = [&](int64_t i) {
    const double x = gate_d[i], sigma = 1 / (1 + std::exp(-x)), complement = 1 / (1 + std::exp(x));
    const double scale = std::abs(dh_d[i] * up_d[i]), sum = 1 + std::abs(x) * complement;
    // sigma and its complement within 7 u each, their sum and products.
    return 22 * kUnitFp32 * scale * sigma * sum + 4 * kSmallest * (1 + scale * sum);
  };
  const auto up_tolerance = [&](int64_t i) {
    return 9 * kUnitFp32 * std::abs(expected.d_up[i]) + 4 * kSmallest * (1 + std::abs(dh_d[i] * gate_d[i]));
  };
  const auto h_expected = reference::swiglu(gate_d, up_d);
  const auto h_tolerance = [&](int64_t i) {
    return 9 * kUnitFp32 * std::abs(h_expected[i]) + 4 * kSmallest * (1 + std::abs(gate_d[i] * up_d[i]));
  };
  for_each_context([&](Context& ctx) {
    GuardedMatrix dh(c.rows, c.columns, p.dh, c.pad, c.misalign), gate(c.rows, c.columns, p.gate, c.pad, c.misalign);
    GuardedMatrix up(c.rows, c.columns, p.up, c.pad + c.skew, c.misalign);
    GuardedMatrix d_gate(c.rows, c.columns, c.pad, c.misalign + c.skew), d_up(c.rows, c.columns, c.pad, c.misalign);
    const auto expect_right = [&](GuardedMatrix& gate_result, GuardedMatrix& up_result, const std::string& what) {
      testing::expect_close(gate_result.values(), expected.d_gate, gate_tolerance, "d_gate" + what);
      testing::expect_close(up_result.values(), expected.d_up, up_tolerance, "d_up" + what);
      EXPECT_TRUE(gate_result.intact() && up_result.intact()) << what;
    };
    GuardedMatrix h(c.rows, c.columns, c.pad + 2 * c.skew, c.misalign);
    swiglu_backward(ctx, dh.view(), gate.view(), up.view(), d_gate.view(), d_up.view(), {});
    expect_right(d_gate, d_up, "");
    swiglu_backward(ctx, dh.view(), gate.view(), up.view(), d_gate.view(), d_up.view(), h.view());
    expect_right(d_gate, d_up, ", with h");
    testing::expect_close(h.values(), h_expected, h_tolerance, "h");
    EXPECT_TRUE(h.intact());
    swiglu_backward(ctx, dh.view(), gate.view(), up.view(), gate.view(), up.view(), dh.view());
    expect_right(gate, up, ", in the places of gate and up");
    testing::expect_close(dh.values(), h_expected, h_tolerance, "h in the place of dh");
    EXPECT_TRUE(dh.intact());
  });
}

TEST(Swiglu, BackwardAgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.columns));
    check_backward(c);
  }
}

TEST(Swiglu, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> memory(64);
  const View<float, 2> x(memory.data(), {2, 8}), wrong(memory.data(), {2, 7});
  EXPECT_THROW(swiglu(ctx, x, wrong, x), Error);
  EXPECT_THROW(swiglu(ctx, x, x, View<float, 2>()), Error);
  EXPECT_THROW(swiglu(ctx, x, x, x, x), Error);
  EXPECT_THROW(swiglu(ctx, x, x, x, View<float, 2>(), x), Error);
  EXPECT_THROW(swiglu(ctx, x, x, x, x, wrong), Error);
  EXPECT_THROW(swiglu_backward(ctx, x, x, x, x, wrong, {}), Error);
  EXPECT_THROW(swiglu_backward(ctx, wrong, x, x, x, x, {}), Error);
  EXPECT_THROW(swiglu_backward(ctx, x, x, x, x, x, wrong), Error);
}

}  // namespace
}  // namespace keel
