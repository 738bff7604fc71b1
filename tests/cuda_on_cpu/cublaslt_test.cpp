// cuBLASLt against plain loops in double, with computed tolerances, and what it refuses.

#include <cublasLt.h>

#include <cmath>
#include <memory>
#include <random>

#include "test_support.h"

namespace cuda_on_cpu {
namespace {

struct Matrix {
  cudaDataType type = CUDA_R_32F;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0, stride = 0;
  int32_t batch = 1;

  int64_t size() const { return (batch - 1) * stride + ld * static_cast<int64_t>(by_rows() ? rows : cols); }
  bool by_rows() const { return order == CUBLASLT_ORDER_ROW; }
  int64_t at(int64_t i, int64_t row, int64_t column) const {
    return i * stride + (by_rows() ? row * ld + column : column * ld + row);
  }
  size_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
};

float round_to(cudaDataType type, float value) {
  return type == CUDA_R_32F ? value : static_cast<float>(__nv_bfloat16(value));
}

/// Values on the device, of the matrix's type.
class Values {
 public:
  Values(const Matrix& matrix, unsigned seed) : type_(matrix.type), host(static_cast<size_t>(matrix.size())) {
    std::minstd_rand random(seed);
    for (float& value : host) value = round_to(type_, std::uniform_real_distribution<float>(-1, 1)(random));
    std::vector<unsigned char> bytes(host.size() * matrix.element_bytes());
    for (size_t i = 0; i < host.size(); ++i) {
      const __nv_bfloat16 narrow = host[i];
      if (type_ == CUDA_R_32F) std::memcpy(&bytes[4 * i], &host[i], 4);
      else std::memcpy(&bytes[2 * i], &narrow, 2);
    }
    device_ = std::make_unique<DeviceArray<unsigned char>>(bytes);
  }
  void* data() { return device_->data(); }
  std::vector<float> fetch() const {
    const std::vector<unsigned char> bytes = device_->host();
    std::vector<float> values(host.size());
    for (size_t i = 0; i < values.size(); ++i) {
      __nv_bfloat16 narrow;
      if (type_ == CUDA_R_32F) {
        std::memcpy(&values[i], &bytes[4 * i], 4);
      } else {
        std::memcpy(&narrow, &bytes[2 * i], 2);
        values[i] = narrow;
      }
    }
    return values;
  }

 private:
  cudaDataType type_;
  std::unique_ptr<DeviceArray<unsigned char>> device_;

 public:
  std::vector<float> host;
};

struct Case {
  int64_t m = 5, n = 7, k = 9;
  bool trans_a = false, trans_b = false;
  cublasLtOrder_t order_a = CUBLASLT_ORDER_COL, order_b = CUBLASLT_ORDER_COL, order_d = CUBLASLT_ORDER_COL;
  cudaDataType inputs = CUDA_R_32F, outputs = CUDA_R_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  float alpha = 1, beta = 0;
  int32_t batch = 1;
  int64_t padding = 0;  ///< of lines
  bool in_place = true;
  bool shared_b = false;  ///< one B for the batch
};

class CublasLtTest : public EmulationTest {
 protected:
  CublasLtTest() { cublasLtCreate(&handle); }
  ~CublasLtTest() override { cublasLtDestroy(handle); }

  static Matrix matrix(const Case& c, cudaDataType type, cublasLtOrder_t order, int64_t rows, int64_t cols) {
    Matrix m{type, order, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)};
    m.ld = (m.by_rows() ? cols : rows) + c.padding;
    m.batch = c.batch;
    m.stride = c.batch > 1 ? m.ld * (m.by_rows() ? rows : cols) + 8 : 0;
    return m;
  }
  static cublasLtMatrixLayout_t layout(const Matrix& m) {
    cublasLtMatrixLayout_t made = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&made, m.type, m.rows, m.cols, m.ld), CUBLAS_STATUS_SUCCESS);
    const int32_t order = m.order;
    set(made, CUBLASLT_MATRIX_LAYOUT_ORDER, order);
    set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, m.batch);
    set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.stride);
    return made;
  }
  template <class Value>
  static void set(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a, const Value& v) {
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(l, a, &v, sizeof v), CUBLAS_STATUS_SUCCESS);
  }
  template <class Value>
  static void set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const Value& v) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(d, a, &v, sizeof v), CUBLAS_STATUS_SUCCESS);
  }
  template <class Value>
  static void set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const Value& v) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(p, a, &v, sizeof v), CUBLAS_STATUS_SUCCESS);
  }

  void check(const Case& c) {
    const Matrix A = matrix(c, c.inputs, c.order_a, c.trans_a ? c.k : c.m, c.trans_a ? c.m : c.k);
    Matrix B = matrix(c, c.inputs, c.order_b, c.trans_b ? c.n : c.k, c.trans_b ? c.k : c.n);
    if (c.shared_b) B.stride = 0;
    const Matrix D = matrix(c, c.outputs, c.order_d, c.m, c.n);
    Matrix C = D;
    if (!c.in_place) C.ld += 3;
    if (!c.in_place && c.batch > 1) C.stride += 3 * static_cast<int64_t>(C.cols + C.rows);
    Values a(A, 1), b(B, 2), before(C, 3), d(D, 4);
    Values bias(Matrix{c.outputs, CUBLASLT_ORDER_COL, static_cast<uint64_t>(c.m), 1, c.m}, 5);
    if (c.in_place) {
      before.host = d.host;
    }
    run(c, A, B, C, D, a.data(), b.data(), c.in_place ? d.data() : before.data(), d.data(), bias.data());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError());
    compare(c, A, B, C, D, a.host, b.host, before.host, d.host, bias.host, d.fetch());
  }

  void run(const Case& c, const Matrix& A, const Matrix& B, const Matrix& C, const Matrix& D, void* a, void* b,
           void* before, void* d, void* bias) {
    cublasLtMatmulDesc_t description = nullptr;
    ASSERT_EQ(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    set(description, CUBLASLT_MATMUL_DESC_TRANSA, c.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(description, CUBLASLT_MATMUL_DESC_TRANSB, c.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, c.epilogue);
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const cublasLtMatrixLayout_t la = layout(A), lb = layout(B), lc = layout(C), ld = layout(D);
    cublasLtMatmulPreference_t preference = nullptr;
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    const uint64_t workspace_bytes = 1 << 20;
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, description, la, lb, lc, ld, preference, 1, &result, &found),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(found, 1);
    ASSERT_LE(result.workspaceSize, workspace_bytes);
    DeviceArray<char> workspace(workspace_bytes);
    EXPECT_EQ(cublasLtMatmul(handle, description, &c.alpha, a, la, b, lb, &c.beta, before, lc, d, ld, &result.algo,
                             workspace.data(), workspace_bytes, nullptr),
              CUBLAS_STATUS_SUCCESS);
    for (const cublasLtMatrixLayout_t l : {la, lb, lc, ld}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(description);
  }

  static void compare(const Case& c, const Matrix& A, const Matrix& B, const Matrix& C, const Matrix& D,
                      const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& before,
                      const std::vector<float>& d, const std::vector<float>& bias, const std::vector<float>& got) {
    std::vector<bool> written(got.size(), false);
    const double unit = c.outputs == CUDA_R_32F ? 0x1p-24 : 0x1p-8;
    for (int64_t i = 0; i < c.batch; ++i) {
      for (int64_t row = 0; row < c.m; ++row) {
        for (int64_t column = 0; column < c.n; ++column) {
          double sum = 0, size = 0;
          for (int64_t j = 0; j < c.k; ++j) {
            const double term = static_cast<double>(a[c.trans_a ? A.at(i, j, row) : A.at(i, row, j)]) *
                                b[c.trans_b ? B.at(i, column, j) : B.at(i, j, column)];
            sum += term;
            size += std::abs(term);
          }
          double want = c.alpha * sum;
          size *= std::abs(c.alpha);
          if (c.beta != 0) {
            want += c.beta * before[C.at(i, row, column)];
            size += std::abs(c.beta * before[C.at(i, row, column)]);
          }
          if ((c.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) want += bias[row];
          if ((c.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) want = std::max(want, 0.0);
          if ((c.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
            want = 0.5 * want * (1 + std::tanh(std::sqrt(2 / M_PI) * (want + 0.044715 * want * want * want)));
          }
          const int64_t at = D.at(i, row, column);
          written[at] = true;
          const double tolerance = 4 * (unit * std::abs(want) + std::sqrt(c.k) * 0x1p-24 * (size + 1));
          ASSERT_TRUE(std::abs(got[at] - want) <= tolerance)
              << got[at] << " and not " << want << " at " << row << ", " << column << " of " << i;
        }
      }
    }
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(written[i] || got[i] == d[i]) << "between lines, at " << i;
    }
  }

  cublasLtHandle_t handle = nullptr;
};

TEST_F(CublasLtTest, OrdersAndTransposes) {
  for (int bits = 0; bits < 32; ++bits) {
    SCOPED_TRACE(bits);
    const auto order = [&](int bit) { return (bits >> bit & 1) != 0 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL; };
    Case c;
    c.trans_a = (bits & 1) != 0;
    c.trans_b = (bits & 2) != 0;
    c.order_a = order(2);
    c.order_b = order(3);
    c.order_d = order(4);
    c.padding = 3;
    check(c);
  }
}

TEST_F(CublasLtTest, Types) {
  for (const auto& [inputs, outputs] : {std::pair{CUDA_R_32F, CUDA_R_32F}, std::pair{CUDA_R_16BF, CUDA_R_32F},
                                        std::pair{CUDA_R_16BF, CUDA_R_16BF}}) {
    for (const float beta : {0.0F, 1.0F, -0.5F}) {
      for (const bool in_place : {true, false}) {
        for (const int32_t batch : {1, 3}) {
          SCOPED_TRACE(testing::Message() << inputs << outputs << beta << in_place << batch);
          Case c{17, 33, 65};
          c.inputs = inputs;
          c.outputs = outputs;
          c.alpha = 0.75F;
          c.beta = beta;
          c.in_place = in_place;
          c.batch = batch;
          c.padding = 7;
          c.trans_a = true;
          check(c);
        }
      }
    }
  }
}

TEST_F(CublasLtTest, Sizes) {
  for (const auto& [m, n, k] : {std::tuple{1, 1, 1}, std::tuple{1, 64, 3}, std::tuple{64, 1, 1}, std::tuple{127, 65, 200},
                                std::tuple{256, 96, 64}}) {
    for (const cudaDataType type : {CUDA_R_32F, CUDA_R_16BF}) {
      Case c{m, n, k};
      c.inputs = c.outputs = type;
      check(c);
    }
  }
}

TEST_F(CublasLtTest, Epilogues) {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS,
                              CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS}) {
    for (const cudaDataType type : {CUDA_R_32F, CUDA_R_16BF}) {
      SCOPED_TRACE(epilogue);
      Case c;
      c.epilogue = epilogue;
      c.inputs = c.outputs = type;
      c.beta = 0.5F;
      check(c);
    }
  }
}

TEST_F(CublasLtTest, OneMatrixMayServeABatch) {
  Case c;
  c.batch = 4;
  c.shared_b = true;
  check(c);
}

// ---- refusals

class CublasLtRefusals : public CublasLtTest {
 protected:
  CublasLtRefusals() {
    cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulPreferenceCreate(&preference);
    la = layout(A);
    lb = layout(B);
    ld = layout(D);
  }
  ~CublasLtRefusals() override {
    for (const cublasLtMatrixLayout_t l : {la, lb, ld}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(description);
  }
  cublasStatus_t heuristic(int requested = 1) {
    return cublasLtMatmulAlgoGetHeuristic(handle, description, la, lb, ld, ld, preference, requested, &result, &found);
  }
  cublasStatus_t multiply(const void* a, const void* b, void* d, void* workspace = nullptr, size_t bytes = 0) {
    return cublasLtMatmul(handle, description, &alpha, a, la, b, lb, &beta, nullptr, ld, d, ld, &result.algo, workspace,
                          bytes, nullptr);
  }
  Matrix A{CUDA_R_32F, CUBLASLT_ORDER_COL, 8, 8, 8}, B = A, D = A;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatrixLayout_t la = nullptr, lb = nullptr, ld = nullptr;
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  float alpha = 1, beta = 0;
};

TEST_F(CublasLtRefusals, ShapesMustFit) {
  EXPECT_EQ(heuristic(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(heuristic(0), CUBLAS_STATUS_INVALID_VALUE);
  set(la, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t{7});
  EXPECT_EQ(heuristic(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(found, 0);
  set(la, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t{8});
  set(la, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{7});
  EXPECT_EQ(heuristic(), CUBLAS_STATUS_INVALID_VALUE);
  set(la, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{8});
  set(la, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{2});
  EXPECT_EQ(heuristic(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtRefusals, TypesOrdersAndEpiloguesThatAreNotThere) {
  set(la, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_16BF});
  EXPECT_EQ(heuristic(), CUBLAS_STATUS_NOT_SUPPORTED) << "inputs of two types";
  set(la, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_32F});
  set(ld, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_16BF});
  EXPECT_EQ(heuristic(), CUBLAS_STATUS_NOT_SUPPORTED) << "bf16 of fp32";
  set(ld, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_32F});
  set(description, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
  set(description, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F);
  set(description, CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_DEVICE});
  EXPECT_EQ(heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
  set(description, CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_HOST});
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  set(ld, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_ROW});
  EXPECT_EQ(heuristic(), CUBLAS_STATUS_NOT_SUPPORTED) << "a bias of rows";
  const uint32_t with_gradient = 8 | 128;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_gradient, 4),
            CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasLtRefusals, UnknownAttributes) {
  const uint64_t value = 0;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, static_cast<cublasLtMatmulDescAttributes_t>(25), &value, 1),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(la, static_cast<cublasLtMatrixLayoutAttribute_t>(7), &value, 8),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_SEARCH_MODE, &value, 4),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(la, CUBLASLT_MATRIX_LAYOUT_LD, &value, 4), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(la, CUBLASLT_MATRIX_LAYOUT_LD, nullptr, 8), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtRefusals, WorkspaceAndAlignment) {
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{1} << 20);
  ASSERT_EQ(heuristic(), CUBLAS_STATUS_SUCCESS);
  ASSERT_GT(result.workspaceSize, 0U);
  DeviceArray<float> a(std::vector<float>(80, 1)), b(std::vector<float>(80, 1)), d(80);
  DeviceArray<char> workspace(result.workspaceSize + 64);
  EXPECT_EQ(multiply(a.data(), b.data(), d.data(), workspace.data(), result.workspaceSize), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.host()[0], 8);
  EXPECT_NE(workspace.host()[0], 0) << "a product leaves nothing of what was there";
  EXPECT_EQ(multiply(a.data(), b.data(), d.data(), workspace.data(), result.workspaceSize - 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(a.data(), b.data(), d.data(), workspace.data() + 64, result.workspaceSize),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(a.data() + 1, b.data(), d.data(), workspace.data(), result.workspaceSize),
            CUBLAS_STATUS_NOT_SUPPORTED);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{4});
  ASSERT_EQ(heuristic(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(a.data() + 1, b.data(), d.data(), workspace.data(), result.workspaceSize), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CublasLtRefusals, AlgorithmsAreForTheirKindOfProduct) {
  ASSERT_EQ(heuristic(), CUBLAS_STATUS_SUCCESS);
  DeviceArray<float> a(64), b(64), d(64);
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  EXPECT_EQ(multiply(a.data(), b.data(), d.data()), CUBLAS_STATUS_INVALID_VALUE);
  result.algo = {};
  EXPECT_EQ(multiply(a.data(), b.data(), d.data()), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(a.data(), b.data(), nullptr), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtRefusals, MatricesLieOnTheDevice) {
  ASSERT_EQ(heuristic(), CUBLAS_STATUS_SUCCESS);
  for (const bool too_short : {false, true}) {
    {
      DeviceArray<float> a(64), b(64), d(too_short ? 63 : 64);
      alignas(16) float host[64];
      EXPECT_EQ(multiply(too_short ? a.data() : host, b.data(), d.data()), CUBLAS_STATUS_SUCCESS);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
      EXPECT_NE(std::string(cudaGetErrorString(cudaErrorIllegalAddress))
                    .find(too_short ? "D runs over the end" : "A is no memory of the device"),
                std::string::npos);
      EXPECT_EQ(multiply(a.data(), b.data(), d.data()), CUBLAS_STATUS_EXECUTION_FAILED);
    }
    cuda_on_cpu_reset();
  }
}

TEST_F(CublasLtTest, RunsInItsStream) {
  options.streams = Streams::lazy;
  const Matrix M{CUDA_R_32F, CUBLASLT_ORDER_COL, 4, 4, 4};
  DeviceArray<float> a(std::vector<float>(16, 1)), b(std::vector<float>(16, 2)), d(std::vector<float>(16, 0));
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasLtMatrixLayout_t l = layout(M);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  float alpha = 1, beta = 0;
  ASSERT_EQ(cublasLtMatmul(handle, description, &alpha, a.data(), l, b.data(), l, &beta, nullptr, l, d.data(), l, nullptr,
                           nullptr, 0, stream),
            CUBLAS_STATUS_SUCCESS);
  alpha = 100;  // was read at the call
  EXPECT_EQ(d.host()[0], 0);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(d.host()[0], 8);
  cublasLtMatrixLayoutDestroy(l);
  cublasLtMatmulDescDestroy(description);
}

TEST(CublasLt, NamesAndHandles) {
  EXPECT_STREQ(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
  EXPECT_STREQ(cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS), "success");
  EXPECT_GT(cublasLtGetVersion(), 120000U);
  EXPECT_EQ(cublasLtCreate(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtDestroy(nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
}

}  // namespace
}  // namespace cuda_on_cpu
