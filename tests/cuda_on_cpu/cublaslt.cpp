// cuBLASLt's interface: descriptions, heuristics, and what is checked before a product is enqueued.

#include "cublasLt.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#include "cublaslt_types.h"
#include "memory.h"
#include "runtime.h"

struct cublasLtContext {
  uint64_t magic;
};

namespace cuda_on_cpu {
namespace {

constexpr uint64_t kMagic = 0x6b65656c436c4c74;  // of handles and algorithms
constexpr size_t kWorkspace = 16 * 1024;         // what a product asks for, if it may have it
constexpr uint32_t kVectorBytes = 16;            // fast kernels load so many bytes at once

template <class Content, class Opaque>
Content& content(Opaque* opaque) {
  static_assert(sizeof(Content) <= sizeof(Opaque) && std::is_trivially_copyable_v<Content>);
  return *std::launder(reinterpret_cast<Content*>(opaque->data));
}
template <class Content, class Opaque>
const Content& content(const Opaque* opaque) {
  return *std::launder(reinterpret_cast<const Content*>(opaque->data));
}

template <class Field>
cublasStatus_t take(Field& field, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque, class Content>
cublasStatus_t create(Opaque** opaque, const Content& initial) {
  if (opaque == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *opaque = new Opaque{};
  new ((*opaque)->data) Content(initial);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque>
cublasStatus_t destroy(Opaque* opaque) {
  delete opaque;
  return CUBLAS_STATUS_SUCCESS;
}

bool has_bias(const Product& product) {
  return (product.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

/// What an algorithm depends on, besides sizes.
uint64_t kind_of(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  uint64_t kind = 0;
  for (const uint64_t part :
       {uint64_t{a.type}, uint64_t{b.type}, uint64_t{c.type}, uint64_t{d.type}, static_cast<uint64_t>(a.order),
        static_cast<uint64_t>(b.order), static_cast<uint64_t>(d.order), static_cast<uint64_t>(product.trans_a),
        static_cast<uint64_t>(product.trans_b), uint64_t{product.epilogue}, static_cast<uint64_t>(product.compute)}) {
    kind = kind * 131 + part;
  }
  return kind;
}

/// Whether a pointer is as aligned as the algorithm was told, as far as vectors of 16 bytes need it.
bool is_aligned(const void* pointer, const Layout& layout, uint32_t promised) {
  const int64_t bytes = layout.element_bytes();
  const auto lies_on = [&](uint32_t alignment) {
    return layout.ld * bytes % alignment == 0 && (layout.batch == 1 || layout.stride * bytes % alignment == 0);
  };
  uint32_t needed = std::min(promised, kVectorBytes);
  while (needed > bytes && !lies_on(needed)) needed /= 2;
  return reinterpret_cast<uintptr_t>(pointer) % std::max<uint32_t>(needed, static_cast<uint32_t>(bytes)) == 0;
}

/// Empty if the device may use the whole matrix.
std::string outside(const char* name, const void* pointer, int64_t bytes) {
  const Allocation* allocation = find_allocation(pointer);
  if (allocation == nullptr) return std::string(name) + " is no memory of the device, or was freed";
  if (holds(*allocation, pointer, static_cast<size_t>(bytes))) return {};
  return std::string(name) + " runs over the end of its allocation";
}

void run(const Matmul& matmul, void* workspace, size_t workspace_bytes) {
  const Layout& d = matmul.d;
  for (const auto& [name, pointer, bytes] :
       {std::tuple{"A", static_cast<const void*>(matmul.A), matmul.a.extent_bytes()},
        std::tuple{"B", static_cast<const void*>(matmul.B), matmul.b.extent_bytes()},
        std::tuple{"D", static_cast<const void*>(matmul.D), d.extent_bytes()},
        std::tuple{"C", static_cast<const void*>(matmul.beta != 0 ? matmul.C : matmul.D),
                   matmul.beta != 0 ? matmul.c.extent_bytes() : d.extent_bytes()},
        std::tuple{"the bias", has_bias(matmul.product) ? matmul.product.bias : matmul.D,
                   has_bias(matmul.product) ? matmul.m() * d.element_bytes() : 0},
        std::tuple{"the workspace", workspace_bytes > 0 ? static_cast<const void*>(workspace) : matmul.D,
                   static_cast<int64_t>(workspace_bytes)}}) {
    if (const std::string problem = outside(name, pointer, bytes); !problem.empty()) {
      return break_device(cudaErrorIllegalAddress, "cublasLtMatmul: " + problem);
    }
  }
  const DeviceAccess access;
  // Whoever keeps something in a workspace that a product uses finds NaN there.
  if (workspace_bytes > 0) std::memset(workspace, 0xff, workspace_bytes);
  compute(matmul);
}

bool valid(cublasLtHandle_t handle) {
  return handle != nullptr && handle->magic == kMagic;
}

}  // namespace

cublasStatus_t check_product(const Product& product, const Layout& a, const Layout& b, const Layout& c,
                             const Layout& d) {
  const auto rows = [](const Layout& layout, int32_t trans) {
    return trans != CUBLAS_OP_N ? layout.cols : layout.rows;
  };
  const auto cols = [](const Layout& layout, int32_t trans) {
    return trans != CUBLAS_OP_N ? layout.rows : layout.cols;
  };
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (layout->rows == 0 || layout->cols == 0 || layout->ld < layout->line_length())
      return CUBLAS_STATUS_INVALID_VALUE;
    if (layout->batch < 1 || layout->batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
    if (layout->rows > 0x7fffffff || layout->cols > 0x7fffffff) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (d.batch > 1 && d.stride < (d.lines() - 1) * d.ld + d.line_length()) return CUBLAS_STATUS_INVALID_VALUE;
  if (cols(a, product.trans_a) != rows(b, product.trans_b) || rows(a, product.trans_a) != d.rows ||
      cols(b, product.trans_b) != d.cols || c.rows != d.rows || c.cols != d.cols) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool inputs = a.type == b.type && (a.type == CUDA_R_32F || a.type == CUDA_R_16BF);
  const bool outputs = c.type == d.type && (d.type == CUDA_R_32F || (d.type == CUDA_R_16BF && a.type == CUDA_R_16BF));
  const bool computes = (product.compute == CUBLAS_COMPUTE_32F || product.compute == CUBLAS_COMPUTE_32F_PEDANTIC) &&
                        product.scale == CUDA_R_32F;
  const bool bias = product.bias_type < 0 || product.bias_type == static_cast<int32_t>(d.type);
  // A bias runs along rows of D: its library has it for matrices in columns only.
  const bool order = c.order == d.order && (!d.by_rows() || !has_bias(product));
  if (!inputs || !outputs || !computes || !bias || !order || product.pointer_mode != CUBLASLT_POINTER_MODE_HOST) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasLtContext{kMagic};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->magic = 0;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() {
  return 130000;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
#define KEEL_CUBLAS_NAME(name) \
  case name:                   \
    return #name;
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_SUCCESS)
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_NOT_INITIALIZED)
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_ALLOC_FAILED)
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_INVALID_VALUE)
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_ARCH_MISMATCH)
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_MAPPING_ERROR)
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_EXECUTION_FAILED)
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_INTERNAL_ERROR)
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_NOT_SUPPORTED)
    KEEL_CUBLAS_NAME(CUBLAS_STATUS_LICENSE_ERROR)
#undef KEEL_CUBLAS_NAME
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the GPU program failed to execute";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the requested functionality is not supported";
    default:
      return cublasLtGetStatusName(status);
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return create(description, Product{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                                     CUBLASLT_POINTER_MODE_HOST, -1, nullptr});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  if (description == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& product = content<Product>(description);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return take(product.compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return take(product.scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return take(product.pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(product.trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(product.trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: {
      uint32_t epilogue = 0;
      const cublasStatus_t status = take(epilogue, value, bytes);
      if (status != CUBLAS_STATUS_SUCCESS) return status;
      switch (epilogue) {
        case CUBLASLT_EPILOGUE_DEFAULT:
        case CUBLASLT_EPILOGUE_RELU:
        case CUBLASLT_EPILOGUE_BIAS:
        case CUBLASLT_EPILOGUE_RELU_BIAS:
        case CUBLASLT_EPILOGUE_GELU:
        case CUBLASLT_EPILOGUE_GELU_BIAS:
          product.epilogue = epilogue;
          return CUBLAS_STATUS_SUCCESS;
        default:
          return CUBLAS_STATUS_NOT_SUPPORTED;
      }
    }
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(product.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(product.bias_type, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  return create(layout, Layout{static_cast<uint32_t>(type), CUBLASLT_ORDER_COL, rows, cols, ld, 1, 0});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& l = content<Layout>(layout);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return take(l.type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return take(l.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return take(l.rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return take(l.cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return take(l.ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(l.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(l.stride, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, Preference{0, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& p = content<Preference>(preference);
  uint32_t ignored = 0;  // all that the emulation does is within any scheme
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(p.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(ignored, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(p.alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      break;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (!valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!description || !a || !b || !c || !d || !preference || requested < 1 || !results || !returned) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *returned = 0;
  const auto& product = content<Product>(description);
  const auto &la = content<Layout>(a), &lb = content<Layout>(b), &lc = content<Layout>(c), &ld = content<Layout>(d);
  if (const auto status = check_product(product, la, lb, lc, ld); status != CUBLAS_STATUS_SUCCESS) return status;
  const auto& wishes = content<Preference>(preference);
  results[0] = {};
  Algorithm algorithm{
      kMagic, kind_of(product, la, lb, lc, ld), std::min<uint64_t>(wishes.workspace_bytes, kWorkspace), {}};
  std::ranges::copy(wishes.alignment, algorithm.alignment);
  new (results[0].algo.data) Algorithm(algorithm);
  results[0].workspaceSize = algorithm.workspace_bytes;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t a, const void* B, cublasLtMatrixLayout_t b,
                              const void* beta, const void* C, cublasLtMatrixLayout_t c, void* D,
                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (!valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!description || !alpha || !A || !a || !B || !b || !beta || !c || !D || !d) return CUBLAS_STATUS_INVALID_VALUE;
  Matmul matmul{content<Product>(description),
                content<Layout>(a),
                content<Layout>(b),
                content<Layout>(c),
                content<Layout>(d),
                0,
                0,
                static_cast<const char*>(A),
                static_cast<const char*>(B),
                static_cast<const char*>(C),
                static_cast<char*>(D)};
  const auto status = check_product(matmul.product, matmul.a, matmul.b, matmul.c, matmul.d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  std::memcpy(&matmul.alpha, alpha, sizeof matmul.alpha);
  std::memcpy(&matmul.beta, beta, sizeof matmul.beta);
  if ((matmul.beta != 0 && C == nullptr) || (has_bias(matmul.product) && matmul.product.bias == nullptr)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Algorithm chosen{kMagic, kind_of(matmul.product, matmul.a, matmul.b, matmul.c, matmul.d), 0, {16, 16, 16, 16}};
  if (algo != nullptr) {
    const auto& given = content<Algorithm>(algo);
    if (given.magic != kMagic || given.kind != chosen.kind) return CUBLAS_STATUS_INVALID_VALUE;
    chosen = given;
  }
  constexpr uintptr_t kWorkspaceAlignment = 256;
  if (workspace_bytes < chosen.workspace_bytes ||
      (chosen.workspace_bytes > 0 && reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!is_aligned(A, matmul.a, chosen.alignment[0]) || !is_aligned(B, matmul.b, chosen.alignment[1]) ||
      (matmul.beta != 0 && !is_aligned(C, matmul.c, chosen.alignment[2])) ||
      !is_aligned(D, matmul.d, chosen.alignment[3])) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const cudaError_t error = api_call([&] {
    if (!is_stream(stream)) return refuse(cudaErrorInvalidResourceHandle, "cublasLtMatmul: not a stream");
    if (const cudaError_t error = check_enqueue(stream); error != cudaSuccess) return error;
    const auto work = [matmul, workspace, bytes = chosen.workspace_bytes] { run(matmul, workspace, bytes); };
    enqueue(stream, work, [&] { return work; });
    launched(stream);
    return cudaSuccess;
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
