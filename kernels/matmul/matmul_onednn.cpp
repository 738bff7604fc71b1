#include "keel/kernels/matmul/matmul_onednn.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include <omp.h>

#include "keel/base/error.h"
#include "keel/kernels/matmul/matmul_cache.h"

namespace keel {
namespace {

using Cache = Context::MatmulCache;
using Primitive = dnnl::matmul;

constexpr int64_t kPage = 4096;
/// Resident memory of one primitive with its generated code, which the library shares among threads; of each thread's
/// own for it; and of the packing buffers of one thread: measured with oneDNN 2.6.3 on shapes of 64 to 4096.
constexpr int64_t kProductBytes = 56 << 10;
constexpr int64_t kArgumentBytes = 4 << 10;
constexpr int64_t kPackingBytes = 2 << 20;

dnnl::memory::desc description(int64_t rows, int64_t columns, int64_t stride, bool transposed) {
  const dnnl::memory::dims extents{rows, columns};
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {extents, dnnl::memory::data_type::f32, strides};
}

Primitive::primitive_desc describe(const Cache& cache, const MatmulShape& s) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // whatever ONEDNN_DEFAULT_FPMATH_MODE says
  if (s.accumulate) {
    dnnl::post_ops add;
    add.append_sum(1.0F);
    attributes.set_post_ops(add);
  }
  return {dnnl::matmul::desc(description(s.m, s.k, s.a_stride, transposes_a(s.transpose)),
                             description(s.k, s.n, s.b_stride, transposes_b(s.transpose)),
                             description(s.m, s.n, s.c_stride, false)),
          attributes, cache.engine};
}

int64_t scratchpad_bytes(const Primitive::primitive_desc& description) {
  const auto bytes = static_cast<int64_t>(description.scratchpad_desc().get_size());
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Without AVX-512 the library packs operands into memory that it allocates and frees in each call.
bool packs(const Primitive::primitive_desc& description) {
  return std::string_view(description.impl_info_str()).substr(0, 3) != "brg";
}

void grow_scratchpad(Cache& cache, int64_t bytes) {
  if (bytes <= cache.scratchpad_bytes) return;
  cache.scratchpad.reset();
  cache.scratchpad_bytes = 0;
  cache.scratchpad.reset(std::aligned_alloc(kPage, bytes));
  if (!cache.scratchpad) throw Error(ErrorKind::memory, "no memory for the scratchpad of a matrix product");
  cache.scratchpad_bytes = bytes;
}

Cache::Product& find_or_make(Cache& cache, const MatmulShape& shape) {
  if (const auto found = cache.products.find(shape); found != cache.products.end()) return found->second;
  const Primitive::primitive_desc description = describe(cache, shape);
  grow_scratchpad(cache, scratchpad_bytes(description));
  cache.packs = cache.packs || packs(description);
  const auto argument = [&](const dnnl::memory::desc& d) { return dnnl::memory(d, cache.engine, nullptr); };
  Cache::Product product{Primitive(description), argument(description.src_desc()), argument(description.weights_desc()),
                         argument(description.dst_desc()), argument(description.scratchpad_desc())};
  return cache.products.emplace(shape, std::move(product)).first->second;
}

/// By the C interface, which takes the arguments from the stack.
void execute(Cache& cache, Cache::Product& product, const float* a, const float* b, float* c) {
  product.a.set_data_handle(const_cast<float*>(a));
  product.b.set_data_handle(const_cast<float*>(b));
  product.c.set_data_handle(c);
  product.scratchpad.set_data_handle(cache.scratchpad.get());
  const std::array<dnnl_exec_arg_t, 4> arguments{{{DNNL_ARG_SRC, product.a.get()},
                                                  {DNNL_ARG_WEIGHTS, product.b.get()},
                                                  {DNNL_ARG_DST, product.c.get()},
                                                  {DNNL_ARG_SCRATCHPAD, product.scratchpad.get()}}};
  dnnl::error::wrap_c_api(dnnl_primitive_execute(product.primitive.get(), cache.stream.get(),
                                                 static_cast<int>(arguments.size()), arguments.data()),
                          "could not run a matrix product");
}

/// oneDNN goes by the calling thread's setting, when a primitive is described as well as when it runs. Threads are
/// ours, each product runs on one.
void use_one_thread() {
  if (omp_get_max_threads() != 1) omp_set_num_threads(1);
}

Error translated(const dnnl::error& e) {
  const ErrorKind kind = e.status == dnnl_out_of_memory ? ErrorKind::memory : ErrorKind::internal;
  return {kind, e.what(), "oneDNN matrix product"};
}

}  // namespace

size_t Cache::Hash::operator()(const MatmulShape& s) const {
  uint64_t hash = static_cast<uint64_t>(s.transpose) * 2 + (s.accumulate ? 1 : 0);
  for (int64_t x : {s.m, s.n, s.k, s.a_stride, s.b_stride, s.c_stride}) {
    hash = (hash ^ static_cast<uint64_t>(x)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
  }
  return hash;
}

void matmul_onednn(Context& worker, const MatmulShape& shape, const float* a, const float* b, float* c) {
  use_one_thread();
  Cache& cache = worker.matmul_cache();
  try {
    execute(cache, find_or_make(cache, shape), a, b, c);
  } catch (const dnnl::error& e) {
    throw translated(e);
  }
}

float* matmul_buffer(Context& ctx, int64_t floats) {
  Cache& cache = ctx.matmul_cache();
  if (cache.buffer_floats < floats) {
    cache.buffer.reset();
    cache.buffer_floats = 0;
    const int64_t bytes = (floats * static_cast<int64_t>(sizeof(float)) + kPage - 1) / kPage * kPage;
    cache.buffer.reset(static_cast<float*>(std::aligned_alloc(kPage, bytes)));
    if (!cache.buffer) throw Error(ErrorKind::memory, "no memory for the partial sums of a matrix product");
    cache.buffer_floats = floats;
  }
  return cache.buffer.get();
}

int64_t matmul_buffer_floats(Context& ctx) {
  return ctx.matmul_cache().buffer_floats;
}

int64_t matmul_onednn_memory(Context& ctx, std::span<const MatmulShape> shapes) {
  use_one_thread();
  int64_t scratchpad = 0;
  bool packing = false;
  std::unordered_set<MatmulShape, Cache::Hash> products;
  for (int t = 0; t < ctx.threads(); ++t) {
    const Cache& cache = ctx.worker(t).matmul_cache();
    scratchpad = std::max(scratchpad, cache.scratchpad_bytes);
    packing = packing || cache.packs;
    for (const auto& [shape, product] : cache.products) products.insert(shape);
  }
  try {
    for (const MatmulShape& shape : shapes) {
      if (!products.insert(shape).second) continue;
      const Primitive::primitive_desc description = describe(ctx.worker(0).matmul_cache(), shape);
      scratchpad = std::max(scratchpad, scratchpad_bytes(description));
      packing = packing || packs(description);
    }
  } catch (const dnnl::error& e) {
    throw translated(e);
  }
  const auto count = static_cast<int64_t>(products.size());
  return count * kProductBytes + ctx.threads() * (scratchpad + count * kArgumentBytes + (packing ? kPackingBytes : 0));
}

}  // namespace keel
