// A product of cuBLASLt by oneDNN's sgemm. bf16 becomes fp32 before (their products are exact there), sums are fp32.

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "cublaslt_types.h"
#include "cuda_bf16.h"
#include "runtime.h"

namespace cuda_on_cpu {
namespace {

/// oneDNN on one thread: the sums are in the same order whatever the machine has.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// A matrix of floats in lines `ld` apart.
struct Lines {
  const float* data;
  int64_t ld;
  bool by_rows;
};

void widen(const char* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    const uint32_t wide = uint32_t{bits} << 16;
    std::memcpy(to + i, &wide, sizeof wide);
  }
}

/// Kept from call to call.
std::vector<float>& buffer(int which) {
  thread_local std::vector<float> buffers[3];
  return buffers[which];
}

float* room(int which, int64_t count) {
  std::vector<float>& memory = buffer(which);
  if (memory.size() < static_cast<size_t>(count)) memory.resize(static_cast<size_t>(count));
  return memory.data();
}

void widen_lines(const char* from, const Layout& layout, float* to) {
  for (int64_t line = 0; line < layout.lines(); ++line) {
    const char* source = from + line * layout.ld * layout.element_bytes();
    float* target = to + line * layout.line_length();
    if (layout.type == CUDA_R_32F) {
      std::memcpy(target, source, static_cast<size_t>(layout.line_length()) * sizeof(float));
    } else {
      widen(source, layout.line_length(), target);
    }
  }
}

Lines as_floats(const char* from, const Layout& layout, bool transposed, int which) {
  const bool by_rows = layout.by_rows() != transposed;
  if (layout.type == CUDA_R_32F) return {reinterpret_cast<const float*>(from), layout.ld, by_rows};
  float* to = room(which, layout.lines() * layout.line_length());
  widen_lines(from, layout, to);
  return {to, layout.line_length(), by_rows};
}

/// row-major C = alpha A B + beta C
void multiply(int64_t m, int64_t n, int64_t k, float alpha, const Lines& a, const Lines& b, float beta, float* C,
              int64_t ldc) {
  dnnl_sgemm(a.by_rows ? 'N' : 'T', b.by_rows ? 'N' : 'T', m, n, k, alpha, a.data, a.ld, b.data, b.ld, beta, C, ldc);
}

/// GELU by tanh, as the library's.
float gelu(float x) {
  constexpr float kScale = 0.7978845608028654F, kCubic = 0.044715F;
  return 0.5F * x * (1 + std::tanh(kScale * (x + kCubic * x * x * x)));
}

float bias_of(const Matmul& matmul, int64_t row) {
  if (matmul.d.type == CUDA_R_32F) return static_cast<const float*>(matmul.product.bias)[row];
  float value;
  widen(static_cast<const char*>(matmul.product.bias) + 2 * row, 1, &value);
  return value;
}

/// The epilogue on one line of D.
void finish(const Matmul& matmul, float* line) {
  const uint32_t epilogue = matmul.product.epilogue;
  const int64_t length = matmul.d.line_length();
  if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
    for (int64_t i = 0; i < length; ++i) line[i] += bias_of(matmul, i);  // lines are columns then
  }
  if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) {
    for (int64_t i = 0; i < length; ++i) line[i] = line[i] < 0 ? 0 : line[i];
  }
  if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
    for (int64_t i = 0; i < length; ++i) line[i] = gelu(line[i]);
  }
}

void compute_one(const Matmul& matmul, const char* A, const char* B, const char* C, char* D) {
  const Layout &c = matmul.c, &d = matmul.d;
  Lines a = as_floats(A, matmul.a, matmul.product.trans_a != CUBLAS_OP_N, 0);
  Lines b = as_floats(B, matmul.b, matmul.product.trans_b != CUBLAS_OP_N, 1);
  int64_t m = matmul.m(), n = matmul.n();
  if (!d.by_rows()) {  // the transposed product is one in rows
    std::swap(a, b);
    std::swap(m, n);
    a.by_rows = !a.by_rows;
    b.by_rows = !b.by_rows;
  }
  const bool direct = d.type == CUDA_R_32F && (matmul.beta == 0 || (C == D && c.ld == d.ld));
  float* out = direct ? reinterpret_cast<float*>(D) : room(2, d.lines() * d.line_length());
  const int64_t out_ld = direct ? d.ld : d.line_length();
  if (!direct && matmul.beta != 0) widen_lines(C, c, out);
  multiply(m, n, matmul.k(), matmul.alpha, a, b, matmul.beta, out, out_ld);
  for (int64_t line = 0; line < d.lines(); ++line) {
    float* from = out + line * out_ld;
    finish(matmul, from);
    if (direct) continue;
    char* to = D + line * d.ld * d.element_bytes();
    if (d.type == CUDA_R_32F) {
      std::memcpy(to, from, static_cast<size_t>(d.line_length()) * sizeof(float));
    } else {
      for (int64_t i = 0; i < d.line_length(); ++i) {
        const __nv_bfloat16 rounded = from[i];
        std::memcpy(to + 2 * i, &rounded, sizeof rounded);
      }
    }
  }
}

}  // namespace

void compute(const Matmul& matmul) {
  const OneThread one_thread;
  const auto at = [](auto* base, const Layout& layout, int64_t i) {
    return base + i * layout.stride * layout.element_bytes();
  };
  for (int64_t i = 0; i < matmul.d.batch; ++i) {
    compute_one(matmul, at(matmul.A, matmul.a, i), at(matmul.B, matmul.b, i),
                matmul.C == nullptr ? nullptr : at(matmul.C, matmul.c, i), at(matmul.D, matmul.d, i));
  }
}

}  // namespace cuda_on_cpu
