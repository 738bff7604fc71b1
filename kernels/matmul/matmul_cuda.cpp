// Products by cuBLASLt. Plans are made once for each combination of shapes, strides, types and alignment.

#include "keel/kernels/matmul/matmul_cuda.h"

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_map>

#include <cublasLt.h>

#include "keel/base/error.h"
#include "keel/kernels/cast/cast_cuda.h"
#include "keel/kernels/common/cuda_queue.h"

namespace keel {
namespace cublaslt {

void check_product(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::device, std::string("cuBLASLt: ") + cublasLtGetStatusString(status), what);
}

template <class Handle, auto kDestroy>
struct Destroy {
  using pointer = Handle;
  void operator()(Handle handle) const noexcept { (void)kDestroy(handle); }
};
template <class Handle, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, kDestroy>>;
using Library = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// A product with the alignment of its matrices, and of its bias, in bytes.
struct Key {
  CudaProduct product;
  uint32_t a, b, c, bias;
  bool operator==(const Key&) const = default;
};

struct Hash {
  size_t operator()(const Key& key) const {
    const MatmulShape& s = key.product.shape;
    uint64_t hash = static_cast<uint64_t>(s.transpose) * 2 + (s.accumulate ? 1 : 0);
    const auto types = static_cast<int64_t>(key.product.operands) * 2 + static_cast<int64_t>(key.product.result);
    const int64_t alignment = ((int64_t{key.a} * 32 + key.b) * 32 + key.c) * 32 + key.bias;
    for (const int64_t x : {s.m, s.n, s.k, s.a_stride, s.b_stride, s.c_stride, types, alignment}) {
      hash = (hash ^ static_cast<uint64_t>(x)) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

/// Of an address: the largest power of two that divides it, at most 16, beyond which no kernel asks for more.
uint32_t alignment(const void* address) {
  constexpr uintptr_t kMost = 16;
  return static_cast<uint32_t>(uintptr_t{1} << std::countr_zero(reinterpret_cast<uintptr_t>(address) | kMost));
}

cudaDataType_t type_of(ElementType type) {
  return type == ElementType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasOperation_t operation(bool transposed) {
  return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/// The library sees columns where rows lie: a row-major [rows, columns] is its [columns, rows].
Layout layout(ElementType type, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_product(cublasLtMatrixLayoutCreate(&made, type_of(type), static_cast<uint64_t>(columns),
                                           static_cast<uint64_t>(rows), stride),
                "layout of a matrix");
  return Layout(made);
}

/// So that C = op(A) op(B) is, in its eyes, C^T = op(B)^T op(A)^T: `first` is B.
struct Plan {
  Description description;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm;
};

template <class T>
void prefer(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check_product(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
                "preferences of a product");
}

/// Parts of the sum are added up in a step of their own, in fp32 and always the same order, if at all.
Preference preference(const Key& key) {
  cublasLtMatmulPreference_t made = nullptr;
  check_product(cublasLtMatmulPreferenceCreate(&made), "preferences of a product");
  Preference preference(made);
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kCudaProductsBytes));
  prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::min(key.c, key.bias));
  return preference;
}

template <class T>
void describe(const Description& description, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_product(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof value),
                "description of a product");
}

Description description(const CudaProduct& product, const void* bias) {
  cublasLtMatmulDesc_t made = nullptr;
  check_product(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description of a product");
  Description description(made);
  describe(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(transposes_b(product.shape.transpose)));
  describe(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(transposes_a(product.shape.transpose)));
  if (product.has_bias) {  // along the rows of its result, which are our columns; of the result's type
    describe(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    describe(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(product.result));
    describe(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  return description;
}

std::string named(const MatmulShape& s) {
  return std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k);
}

Plan make_plan(cublasLtHandle_t library, const Key& key, const void* bias) {
  const CudaProduct& p = key.product;
  const MatmulShape& s = p.shape;
  const bool ta = transposes_a(s.transpose), tb = transposes_b(s.transpose);
  Plan plan{description(p, bias),
            layout(p.operands, tb ? s.n : s.k, tb ? s.k : s.n, s.b_stride),
            layout(p.operands, ta ? s.k : s.m, ta ? s.m : s.k, s.a_stride),
            layout(p.result, s.m, s.n, s.c_stride),
            {}};
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library, plan.description.get(), plan.first.get(), plan.second.get(),
                                     plan.result.get(), plan.result.get(), preference(key).get(), 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count < 1 || found.state != CUBLAS_STATUS_SUCCESS) {
    throw Error(ErrorKind::device, "cuBLASLt has no algorithm for a product", named(s));
  }
  plan.algorithm = found.algo;
  return plan;
}

}  // namespace cublaslt

struct CudaProducts {
  cublaslt::Library library;
  KeptMemory workspace, rounded_bias;
  std::unordered_map<cublaslt::Key, cublaslt::Plan, cublaslt::Hash> plans;

  CudaProducts() {
    cublasLtHandle_t made = nullptr;
    cublaslt::check_product(cublasLtCreate(&made), "cublasLtCreate");
    library.reset(made);
  }
  const cublaslt::Plan& plan(const cublaslt::Key& key, const void* bias) {
    if (const auto found = plans.find(key); found != plans.end()) return found->second;
    return plans.emplace(key, cublaslt::make_plan(library.get(), key, bias)).first->second;
  }
  /// The bias in the type of the result.
  const void* bias_of(CudaQueue& queue, const CudaProduct& product, const float* bias) {
    if (!product.has_bias || product.result == ElementType::fp32) return bias;
    const int64_t n = product.shape.n;
    auto* rounded = static_cast<Bf16*>(rounded_bias.at_least(n * element_bytes(product.result)));
    keel_cuda_narrow(queue, {bias, {1, n}}, {rounded, {1, n}});
    return rounded;
  }
};

void CloseCudaProducts::operator()(CudaProducts* products) const {
  delete products;
}

void keel_cuda_matmul(CudaQueue& queue, const CudaProduct& product, const void* a, const void* b, void* c,
                      const float* given_bias) {
  if (!queue.products) queue.products.reset(new CudaProducts);
  CudaProducts& products = *queue.products;
  const void* bias = products.bias_of(queue, product, given_bias);
  const cublaslt::Plan& plan = products.plan(
      {product, cublaslt::alignment(a), cublaslt::alignment(b), cublaslt::alignment(c), cublaslt::alignment(bias)},
      bias);
  if (product.has_bias) cublaslt::describe(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float one = 1, beta = product.shape.accumulate ? 1 : 0;
  cublaslt::check_product(
      cublasLtMatmul(products.library.get(), plan.description.get(), &one, b, plan.first.get(), a, plan.second.get(),
                     &beta, c, plan.result.get(), c, plan.result.get(), &plan.algorithm,
                     products.workspace.at_least(kCudaProductsBytes), kCudaProductsBytes, queue.stream),
      "product");
}

int64_t keel_cuda_matmul_memory(CudaQueue& queue, bool there_will_be_one) {
  const int64_t bias = queue.products ? queue.products->rounded_bias.bytes() : 0;
  return (queue.products || there_will_be_one ? kCudaProductsBytes : 0) + bias + queue.widened_weights.bytes();
}

}  // namespace keel
