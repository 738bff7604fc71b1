#include "keel/kernels/matmul/matmul.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/matmul/matmul_ref.h"
#include "support/complex_step.h"
#include "support/errors.h"
#include "support/numeric.h"
#include "support/test_device.h"

namespace keel {
namespace {

using testing::Guarded;
using testing::Random;

constexpr Transpose kTransposes[] = {Transpose::none, Transpose::a, Transpose::b, Transpose::both};

/// One product: matrices as stored, in buffers with `pad` elements after each row and `misalign` before the first.
struct Case {
  int64_t m, n, k;
  Transpose transpose = Transpose::none;
  bool accumulate = false;
  int threads = 1;
  int64_t pad = 0, misalign = 0;
  bool bias = false;

  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " transpose " +
           std::to_string(static_cast<int>(transpose)) + (accumulate ? " accumulate" : "") + " threads " +
           std::to_string(threads) + " pad " + std::to_string(pad) + " misalign " + std::to_string(misalign) +
           (bias ? " bias" : "");
  }
};

struct Matrix {
  Matrix(int64_t rows_, int64_t columns_, int64_t pad, int64_t misalign, const std::vector<float>& values)
      : rows(rows_), columns(columns_), stride(columns_ + pad), memory(rows_ * stride, misalign) {
    for (int64_t i = 0; i < rows * columns; ++i) memory.get()[i / columns * stride + i % columns] = values[i];
  }
  View<float, 2> view() { return {memory.get(), {rows, columns}, {stride, 1}}; }
  std::vector<float> values() {
    std::vector<float> v(rows * columns);
    for (int64_t i = 0; i < rows * columns; ++i) v[i] = memory.get()[i / columns * stride + i % columns];
    return v;
  }
  bool padding_is_nan() {
    for (int64_t i = 0; i < rows * stride; ++i) {
      if (i % stride >= columns && !std::isnan(memory.get()[i])) return false;
    }
    return true;
  }
  int64_t rows, columns, stride;
  Guarded<float> memory;
};

/// Contexts by their number of threads, each made once.
class Contexts {
 public:
  Context& with(int threads) {
    std::unique_ptr<Context>& context = contexts_[threads];
    if (!context) context.reset(new Context(testing::test_context(threads)));
    return *context;
  }

 private:
  std::map<int, std::unique_ptr<Context>> contexts_;
};

/// Runs the case on `values(count)` and gives each element of the result to `check(actual, exact, sum of |a b|)`.
template <class Values, class Check>
void run(Contexts& contexts, const Case& c, Values values, Check check) {
  const bool ta = transposes_a(c.transpose), tb = transposes_b(c.transpose);
  const std::vector<float> a = values(c.m * c.k), b = values(c.k * c.n), before = values(c.m * c.n);
  const std::vector<float> bias = values(c.bias ? c.n : 0);
  Matrix A(ta ? c.k : c.m, ta ? c.m : c.k, c.pad, c.misalign, a);
  Matrix B(tb ? c.n : c.k, tb ? c.k : c.n, c.pad, c.misalign, b);
  Matrix C(c.m, c.n, c.pad, c.misalign, before);
  Context& ctx = contexts.with(c.threads);
  matmul(ctx, A.view(), B.view(), C.view(), c.transpose, c.accumulate,
         c.bias ? View<const float, 1>(bias.data(), {c.n}) : View<const float, 1>());
  ctx.synchronize();
  const std::vector<float> result = C.values();
  const auto op = [](bool transpose, int64_t rows, int64_t columns, const std::vector<float>& stored) {
    const std::vector<double> values = testing::widen<double>(stored);
    return transpose ? reference::transposed(reference::Matrix<double>{columns, rows, values})
                     : reference::Matrix<double>{rows, columns, values};
  };
  const auto magnitude = [](reference::Matrix<double> matrix) {
    for (double& value : matrix.values) value = std::abs(value);
    return matrix;
  };
  const auto opA = op(ta, c.m, c.k, a), opB = op(tb, c.k, c.n, b);
  const auto exact = reference::matmul(opA, opB), sums = reference::matmul(magnitude(opA), magnitude(opB));
  for (int64_t i = 0; i < c.m * c.n; ++i) {
    const double start = c.accumulate ? before[i] : (c.bias ? bias[i % c.n] : 0);
    check(result[i], start + exact.values[i], std::abs(start) + sums.values[i]);
  }
  EXPECT_TRUE(C.memory.intact());
  EXPECT_TRUE(C.padding_is_nan());
}

void check_close(Contexts& contexts, const Case& c) {
  SCOPED_TRACE(c.name());
  Random random(7);
  int64_t wrong = 0;
  run(
      contexts, c, [&](int64_t n) { return random.normals(n); },
      [&](float actual, double exact, double sum_abs) {
        wrong += testing::is_close(actual, exact, testing::sum_tolerance(exact, c.k + 1, sum_abs)) ? 0 : 1;
      });
  EXPECT_EQ(wrong, 0);
}

/// Integers small enough that every partial sum is exact in fp32, so that the order of addition does not matter. In
/// bf16 they would not be: 255 takes 8 bits, 257 takes 9.
void check_exact(Contexts& contexts, const Case& c) {
  SCOPED_TRACE(c.name());
  Random random(11);
  int64_t wrong = 0;
  const auto values = [&](int64_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = static_cast<float>(random.integer(-100, 100));
    if (n > 0) v[n / 2] = 257;
    return v;
  };
  run(contexts, c, values,
      [&](float actual, double exact, double) { wrong += static_cast<double>(actual) == exact ? 0 : 1; });
  EXPECT_EQ(wrong, 0);
}

TEST(MatmulReference, BackwardAgainstTheComplexStep) {
  using reference::Matrix;
  Random random(1);
  const int64_t m = 3, k = 4, n = 2;
  const std::vector<double> a = testing::widen<double>(random.normals(m * k)),
                            b = testing::widen<double>(random.normals(k * n)),
                            weights = testing::widen<double>(random.normals(m * n));
  // loss = sum of weights * (A B), so that dC = weights.
  const auto loss = [&](const auto& A, const auto& B) {
    const auto c = reference::matmul(A, B);
    auto sum = c.values[0] * weights[0];
    for (size_t i = 1; i < weights.size(); ++i) sum += c.values[i] * weights[i];
    return sum;
  };
  using Complex = std::complex<double>;
  const std::vector<Complex> fixed_a(a.begin(), a.end()), fixed_b(b.begin(), b.end());
  const auto gradients = reference::matmul_backward<double>({m, n, weights}, {m, k, a}, {k, n, b});
  const auto of_a = testing::complex_step_gradient(a, [&](const std::vector<Complex>& at) {
    return loss(Matrix<Complex>{m, k, at}, Matrix<Complex>{k, n, fixed_b});
  });
  const auto of_b = testing::complex_step_gradient(b, [&](const std::vector<Complex>& at) {
    return loss(Matrix<Complex>{m, k, fixed_a}, Matrix<Complex>{k, n, at});
  });
  testing::expect_same_gradient(gradients.dA.values, of_a, "dA");
  testing::expect_same_gradient(gradients.dB.values, of_b, "dB");
}

TEST(Matmul, SmallAndOddShapes) {
  Contexts contexts;
  const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 31, 33};
  for (Transpose transpose : kTransposes) {
    for (int64_t m : sizes) {
      for (int64_t n : sizes) {
        for (int64_t k : {1, 3, 16, 33})
          check_exact(contexts, {m, n, k, transpose, (m + n) % 2 == 0, 1 + static_cast<int>(m % 3)});
      }
    }
  }
}

TEST(Matmul, LayerShapes) {
  Contexts contexts;
  for (Transpose transpose : kTransposes) {
    for (bool accumulate : {false, true}) {
      for (int threads : {1, 2, 3}) {
        check_close(contexts, {64, 96, 130, transpose, accumulate, threads});
        check_exact(contexts, {65, 127, 129, transpose, accumulate, threads});
      }
    }
  }
}

TEST(Matmul, TallWideAndDeep) {
  Contexts contexts;
  for (int threads : {1, 2}) {
    check_close(contexts, {1027, 40, 33, Transpose::b, false, threads});
    check_close(contexts, {3, 1500, 64, Transpose::b, false, threads});
    check_close(contexts, {48, 24, 3001, Transpose::a, true, threads});
    check_exact(contexts, {16, 64, 1027, Transpose::a, true, threads});
    check_exact(contexts, {1, 1, 1500, Transpose::none, true, threads});
    check_exact(contexts, {1, 700, 64, Transpose::none, false, threads});
    check_exact(contexts, {700, 1, 64, Transpose::both, false, threads});
  }
}

/// A long matrix times few rows of many columns: as many threads as rows to add up.
TEST(Matmul, ShortDepthOnManyThreads) {
  Contexts contexts;
  for (int threads : {3, 8, 16}) {
    check_exact(contexts, {1, 100'000, 16, Transpose::a, false, threads});
    check_exact(contexts, {2, 50'000, 70, Transpose::both, true, threads});
    check_exact(contexts, {1, 100'000, 47, Transpose::a, true, threads});
  }
}

TEST(Matmul, StridedRows) {
  Contexts contexts;
  for (Transpose transpose : kTransposes) {
    for (bool accumulate : {false, true}) {
      for (int64_t pad : {1, 5, 64}) {
        check_exact(contexts, {33, 50, 17, transpose, accumulate, 2, pad, 0});
        check_exact(contexts, {64, 48, 96, transpose, accumulate, 2, pad, 1});
        check_exact(contexts, {1, 48, 1, transpose, accumulate, 1, pad, 3});
      }
    }
  }
}

TEST(Matmul, Bias) {
  Contexts contexts;
  for (Transpose transpose : kTransposes) {
    for (int threads : {1, 3}) {
      for (int64_t pad : {0, 3}) {
        check_exact(contexts, {1, 1, 1, transpose, false, threads, pad, pad, true});
        check_exact(contexts, {64, 96, 130, transpose, false, threads, pad, 0, true});
        check_exact(contexts, {33, 17, 9, transpose, false, threads, pad, 1, true});
        check_exact(contexts, {48, 24, 3001, transpose, false, threads, pad, 0, true});
        check_exact(contexts, {5, 4, 0, transpose, false, threads, pad, 0, true});
        check_close(contexts, {65, 127, 129, transpose, false, threads, pad, 0, true});
      }
    }
  }
}

/// Products of one shape, each with a bias of its own.
TEST(Matmul, BiasesTakeTurns) {
  const std::vector<float> a(64 * 32, 1), b(48 * 32, 2), first(48, 3), second(48, 5);
  std::vector<float> c(64 * 48);
  Context ctx = testing::test_context(2);
  for (const std::vector<float>* bias : {&first, &second, &first}) {
    matmul(ctx, {a.data(), {64, 32}}, {b.data(), {48, 32}}, {c.data(), {64, 48}}, Transpose::b, false,
           {bias->data(), {48}});
    ctx.synchronize();
    EXPECT_EQ(c, std::vector<float>(64 * 48, 64 + bias->front()));
  }
}

TEST(Matmul, RefusesABiasThatDoesNotFit) {
  float x[64] = {};
  Context ctx = testing::test_context(1);
  const View<const float, 2> A(x, {3, 4}), B(x, {4, 2});
  const View<float, 2> C(x, {3, 2});
  testing::expect_error(ErrorKind::shape, "bias is [3], not [2]", [&] {
    matmul(ctx, A, B, C, Transpose::none, false, {x, {3}});
  });
  testing::expect_error(ErrorKind::shape, "a bias is not accumulated", [&] {
    matmul(ctx, A, B, C, Transpose::none, true, {x, {2}});
  });
}

TEST(Matmul, MisalignedBuffers) {
  Contexts contexts;
  for (Transpose transpose : kTransposes) {
    for (int64_t misalign : {1, 3, 15}) check_exact(contexts, {37, 80, 65, transpose, false, 2, 0, misalign});
  }
}

TEST(Matmul, ZeroExtents) {
  Contexts contexts;
  for (Transpose transpose : kTransposes) {
    for (bool accumulate : {false, true}) {
      check_exact(contexts, {0, 5, 4, transpose, accumulate});
      check_exact(contexts, {5, 0, 4, transpose, accumulate});
      check_exact(contexts, {5, 4, 0, transpose, accumulate});
      check_exact(contexts, {5, 4, 0, transpose, accumulate, 1, 3, 1});
      check_exact(contexts, {0, 0, 0, transpose, accumulate});
    }
  }
}

/// 1 + 2^-12 has no exact bf16 (8 bits) or tf32 (11 bits) form.
TEST(Matmul, KeepsFullPrecisionWhateverTheEnvironmentSays) {
  ASSERT_EQ(setenv("ONEDNN_DEFAULT_FPMATH_MODE", "ANY", 1), 0);
  const std::vector<float> a(64 * 64, 1 + 0x1p-12F), identity = [] {
    std::vector<float> v(64 * 64, 0);
    for (int64_t i = 0; i < 64; ++i) v[i * 65] = 1;
    return v;
  }();
  std::vector<float> c(64 * 64);
  Context ctx = testing::test_context(1);
  matmul(ctx, {a.data(), {64, 64}}, {identity.data(), {64, 64}}, {c.data(), {64, 64}});
  EXPECT_EQ(c, a);
  unsetenv("ONEDNN_DEFAULT_FPMATH_MODE");
}

TEST(Matmul, SameBitsEveryTime) {
  Random random(3);
  const std::vector<float> a = random.normals(300 * 70), b = random.normals(300 * 50);
  Context first = testing::test_context(2), second = testing::test_context(2);
  std::vector<float> c(70 * 50), again(70 * 50);
  matmul(first, {a.data(), {300, 70}}, {b.data(), {300, 50}}, {c.data(), {70, 50}}, Transpose::a);
  for (Context* ctx : {&first, &second}) {
    matmul(*ctx, {a.data(), {300, 70}}, {b.data(), {300, 50}}, {again.data(), {70, 50}}, Transpose::a);
    EXPECT_EQ(c, again);
  }
}

/// The scratchpad of a weight gradient grows with the threads it was made for.
TEST(Matmul, TakesTurnsBetweenContexts) {
  const std::vector<float> a(2048 * 64, 2), b(2048 * 128, 3);
  std::vector<float> c(64 * 128);
  Context one = testing::test_context(1), three = testing::test_context(3);
  const std::vector<MatmulShape> shape{{64, 128, 2048, Transpose::a}};
  const int64_t planned_one = matmul_memory(one, shape), planned_three = matmul_memory(three, shape);
  if (!testing::test_device()) {
    EXPECT_LT(planned_one, planned_three);
  }
  for (int i = 0; i < 3; ++i) {
    for (Context* ctx : {&one, &three}) {
      std::fill(c.begin(), c.end(), -1.0F);
      matmul(*ctx, {a.data(), {2048, 64}}, {b.data(), {2048, 128}}, {c.data(), {64, 128}}, Transpose::a);
      EXPECT_EQ(c, std::vector<float>(64 * 128, 2048 * 6));
    }
  }
  EXPECT_EQ(matmul_memory(one), planned_one);
  EXPECT_EQ(matmul_memory(three), planned_three);
}

std::string message_of(View<const float, 2> A, View<const float, 2> B, View<float, 2> C, Transpose transpose) {
  Context ctx = testing::test_context(1);
  try {
    matmul(ctx, A, B, C, transpose);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::shape);
    return e.what();
  }
  return "nothing thrown";
}

TEST(Matmul, NamesExtentsThatDisagree) {
  float x[64] = {};
  EXPECT_EQ(message_of({x, {3, 4}}, {x, {5, 2}}, {x, {3, 2}}, Transpose::none),
            "the extents of a matrix product disagree (matmul A [3, 4] B [5, 2] -> C [3, 2])");
  EXPECT_EQ(message_of({x, {3, 4}}, {x, {4, 2}}, {x, {3, 2}}, Transpose::a),
            "the extents of a matrix product disagree (matmul A [3, 4]^T B [4, 2] -> C [3, 2])");
  EXPECT_THAT(message_of({x, {3, 4}}, {x, {2, 4}}, {x, {2, 3}}, Transpose::b), ::testing::HasSubstr("B [2, 4]^T"));
  EXPECT_THAT(message_of({x, {3, 4}}, {x, {4, 2}}, {x, {3, 3}}, Transpose::none), ::testing::HasSubstr("C [3, 3]"));
}

TEST(Matmul, RefusesRowsItCannotRead) {
  float x[64] = {};
  const std::string refusal = "a matrix product needs rows that are contiguous and do not overlap";
  EXPECT_THAT(message_of({x, {3, 4}, {1, 3}}, {x, {4, 2}}, {x, {3, 2}}, Transpose::none),
              ::testing::HasSubstr(refusal));
  EXPECT_THAT(message_of({x, {3, 4}}, {x, {4, 2}, {1, 1}}, {x, {3, 2}}, Transpose::none),
              ::testing::HasSubstr(refusal));
}

void check_sum_in_order(Context& ctx, const std::vector<float>& parts, int64_t m, int64_t n, int64_t stride,
                        bool accumulate) {
  std::vector<float> c(m * stride, 0.25F);
  sum_products(ctx, {parts.data(), {3, m, n}}, {c.data(), {m, n}, {stride, 1}}, accumulate);
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < stride; ++column) {
      const float* terms = parts.data() + row * n + std::min(column, n - 1);
      const float first = accumulate ? 0.25F + terms[0] : terms[0];
      const float expected = column < n ? (first + terms[m * n]) + terms[2 * m * n] : 0.25F;
      EXPECT_EQ(c[row * stride + column], expected) << row << ", " << column;
    }
  }
}

TEST(SumProducts, AddUpInOrder) {
  constexpr int64_t kParts = 3, m = 5, n = 300;
  std::vector<float> parts(kParts * m * n);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = std::sin(static_cast<float>(i)) * std::pow(10.0F, i % 7);
  for (int threads : {1, 2, 3}) {
    Context ctx = testing::test_context(threads);
    for (bool accumulate : {false, true}) {
      for (int64_t stride : {310, 312}) check_sum_in_order(ctx, parts, m, n, stride, accumulate);
    }
    std::vector<float> c(m * n);
    EXPECT_THROW(sum_products(ctx, {parts.data(), {0, m, n}}, {c.data(), {m, n}}, true), Error);
    EXPECT_THROW(sum_products(ctx, {parts.data(), {kParts, m, n}}, {c.data(), {m, n - 1}}, true), Error);
  }
}

TEST(MatmulMemory, PredictsWhatTheProductsKeep) {
  const std::vector<float> x(2048 * 256, 1), dy(2048 * 128, 1), w(128 * 256, 1);
  std::vector<float> y(2048 * 128), dx(2048 * 256), dw(128 * 256);
  const std::vector<MatmulShape> shapes{{2048, 128, 256, Transpose::b, false},
                                        {2048, 256, 128, Transpose::none, false},
                                        {128, 256, 2048, Transpose::a, true},
                                        {128, 256, 2048, Transpose::a, true, 128, 256, 256},
                                        {0, 5, 5}};
  Context ctx = testing::test_context(2);
  EXPECT_EQ(matmul_memory(ctx), 0);
  const int64_t planned = matmul_memory(ctx, shapes);
  EXPECT_EQ(matmul_memory(ctx), 0);
  matmul(ctx, {x.data(), {2048, 256}}, {w.data(), {128, 256}}, {y.data(), {2048, 128}}, Transpose::b);
  matmul(ctx, {dy.data(), {2048, 128}}, {w.data(), {128, 256}}, {dx.data(), {2048, 256}});
  matmul(ctx, {dy.data(), {2048, 128}}, {x.data(), {2048, 256}}, {dw.data(), {128, 256}}, Transpose::a, true);
  EXPECT_EQ(matmul_memory(ctx), planned);
  EXPECT_EQ(matmul_memory(ctx, shapes), planned);
  EXPECT_GT(planned, 0);
  EXPECT_LT(planned, testing::test_device() ? 64 << 20 : 16 << 20);
}

}  // namespace
}  // namespace keel
