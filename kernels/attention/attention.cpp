#include "keel/kernels/attention/attention.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "keel/base/error.h"
#include "keel/kernels/attention/attention_cpu.h"
#include "keel/kernels/attention/attention_cuda.h"
#include "keel/kernels/attention/attention_pairs.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/shape_check.h"

namespace keel {
namespace {

std::string extents(const char* name, const AnyView<const void, 3>& x) {
  return std::string(name) + " [" + std::to_string(x.extent(0)) + ", " + std::to_string(x.extent(1)) + ", " +
         std::to_string(x.extent(2)) + "]";
}

[[noreturn]] void fail(const std::string& message, const std::string& where) {
  throw Error(ErrorKind::shape, message, "attention: " + where);
}

void check_rows(const char* name, const AnyView<const void, 3>& x, int64_t rows, int64_t heads, int64_t head_dim,
                ElementType type) {
  if (x.extent(0) != rows || x.extent(1) != heads || x.extent(2) != head_dim) {
    fail("expected [" + std::to_string(rows) + ", " + std::to_string(heads) + ", " + std::to_string(head_dim) + "]",
         extents(name, x));
  }
  if (head_dim > 1 && x.stride(2) != 1) fail("the last axis is not contiguous", extents(name, x));
  check_type("attention", name, x, type);
}

void check_dense(const char* name, const View<const float, 2>& x, int64_t heads, int64_t tokens) {
  if (x.extent(0) != heads || x.extent(1) != tokens || !x.is_dense()) {
    fail("expected dense [" + std::to_string(heads) + ", " + std::to_string(tokens) + "]",
         std::string(name) + " [" + std::to_string(x.extent(0)) + ", " + std::to_string(x.extent(1)) + "]");
  }
}

void check_sequences(const View<const int32_t, 1>& cu_seqlens, int64_t tokens, bool on_host) {
  if (cu_seqlens.extent(0) < 1 || !cu_seqlens.is_dense()) fail("expected [sequences + 1], dense", "cu_seqlens");
  if (!on_host) return;
  const int64_t sequences = cu_seqlens.extent(0) - 1;
  bool ascending = cu_seqlens(0) >= 0 && cu_seqlens(sequences) <= tokens;
  for (int64_t s = 0; s < sequences; ++s) ascending &= cu_seqlens(s) <= cu_seqlens(s + 1);
  if (!ascending) fail("does not ascend within 0 .. the number of queries, " + std::to_string(tokens), "cu_seqlens");
}

void check_pages(const KeysValues& kv, const View<const int32_t, 1>& cu_seqlens, bool on_host) {
  const int64_t sequences = cu_seqlens.extent(0) - 1;
  const int64_t pages = kv.page_table.extent(1);
  if (kv.page_size < 1) fail("a page holds at least one token", "page_size " + std::to_string(kv.page_size));
  if (kv.page_table.extent(0) != sequences || (pages > 1 && kv.page_table.stride(1) != 1)) {
    fail("expected one contiguous row for each of " + std::to_string(sequences) + " sequences",
         "page_table [" + std::to_string(kv.page_table.extent(0)) + ", " + std::to_string(pages) + "]");
  }
  if (!kv.kv_lengths || kv.kv_lengths.extent(0) != sequences || !kv.kv_lengths.is_dense()) {
    fail("expected one length for each of " + std::to_string(sequences) + " sequences", "kv_lengths");
  }
  if (!on_host) return;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t length = kv.kv_lengths(s);
    const std::string where = "sequence " + std::to_string(s) + " of " + std::to_string(length) + " tokens";
    if (length < cu_seqlens(s + 1) - cu_seqlens(s)) fail("more queries than keys", where);
    if (length > pages * kv.page_size) fail("more keys than its pages hold", where);
    for (int64_t t = 0; t < length; t += kv.page_size) {
      const int64_t row = kv.page_table(s, t / kv.page_size) * kv.page_size;
      const int64_t used = std::min(kv.page_size, length - t);
      if (row < 0 || row + used > kv.keys.extent(0)) fail("a page lies outside the keys", where);
    }
  }
}

HeadRows<const float> rows_of(const AnyView<const void, 3>& x) {
  return {x.as<float>().data(), x.stride(0), x.stride(1)};
}
HeadRows<float> rows_of(const AnyView<void, 3>& x) {
  return {x.as<float>().data(), x.stride(0), x.stride(1)};
}

AttentionSizes checked_sizes(Context& context, const AnyView<const void, 3>& q, const AnyView<const void, 3>& k,
                             const View<const int32_t, 1>& cu_seqlens, float scale, int64_t window) {
  const int64_t heads = q.extent(1), kv_heads = k.extent(1), head_dim = q.extent(2);
  check_rows("q", q, q.extent(0), heads, head_dim, q.type());
  if (context.device() == Device::cpu) (void)floats_of("attention", "q", q);
  if (head_dim < 1 || kv_heads < 1 || heads < kv_heads || heads % kv_heads != 0) {
    fail("expected heads a multiple of kv_heads and head_dim at least 1", extents("q", q) + ", " + extents("k", k));
  }
  check_sequences(cu_seqlens, q.extent(0), context.device() == Device::cpu);
  return {.sequences = cu_seqlens.extent(0) - 1,
          .tokens = q.extent(0),
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .cu_seqlens = cu_seqlens.data(),
          .scale = scale,
          .window = window < std::numeric_limits<int32_t>::max() ? std::max<int64_t>(window, 0) : 0,
          .threads = context.team(),
          .scratch = nullptr,
          .scratch_floats = 0};
}

int64_t key_count(const AttentionSizes& z, const int32_t* kv_lengths, int64_t sequence) {
  return kv_lengths != nullptr ? kv_lengths[sequence] : z.cu_seqlens[sequence + 1] - z.cu_seqlens[sequence];
}

CudaAttentionSizes on_device(const AttentionSizes& z) {
  return {.sequences = z.sequences,
          .tokens = z.tokens,
          .heads = z.heads,
          .kv_heads = z.kv_heads,
          .head_dim = z.head_dim,
          .cu_seqlens = z.cu_seqlens,
          .scale = z.scale,
          .window = z.window};
}

template <class T>
CudaHeadRows<const T> device_rows_of(const AnyView<const void, 3>& x) {
  return {x.as<T>().data(), x.stride(0), x.stride(1)};
}
template <class T>
CudaHeadRows<T> device_rows_of(const AnyView<void, 3>& x) {
  return {x.as<T>().data(), x.stride(0), x.stride(1)};
}

/// Multiply-adds of one product of queries and the keys they see.
double score_flops(const AttentionSizes& z, const int32_t* kv_lengths) {
  double pairs = 0;
  for (int64_t s = 0; s < z.sequences; ++s) {
    pairs += attention_pairs(z.cu_seqlens[s + 1] - z.cu_seqlens[s], key_count(z, kv_lengths, s), z.window);
  }
  return pairs * static_cast<double>(z.heads * z.head_dim);
}

double key_bytes(const AttentionSizes& z, const int32_t* kv_lengths) {
  double keys = 0;
  for (int64_t s = 0; s < z.sequences; ++s) keys += static_cast<double>(key_count(z, kv_lengths, s));
  return keys * static_cast<double>(z.kv_heads * z.head_dim) * sizeof(float);
}

double query_bytes(const AttentionSizes& z) {
  return static_cast<double>(z.attending() * z.heads * z.head_dim) * sizeof(float);
}

void give_scratch(Context& context, AttentionSizes& sizes, int64_t floats) {
  sizes.scratch_floats = floats;
  sizes.scratch =
      static_cast<float*>(context.scratch(sizes.threads.count * floats * static_cast<int64_t>(sizeof(float))));
}

/// What it has to do follows from the lengths of the sequences, which only the device knows. `terms`: how often each
/// element of a query's or key's heads counts.
void count_on_device(Context& context, const char* name, const AttentionSizes& z, ElementType type,
                     const int32_t* kv_lengths, CudaAttentionTerms terms) {
  if (context.profile() == nullptr) return;
  const auto of_queries = static_cast<double>(z.heads * z.head_dim),
             of_keys = static_cast<double>(z.kv_heads * z.head_dim);
  terms.flops_of_pair *= of_queries;
  terms.bytes_of_query *= of_queries * static_cast<double>(element_bytes(type));
  terms.bytes_of_key *= of_keys * static_cast<double>(element_bytes(type));
  cuda::attention_cost(context.queue(), on_device(z), kv_lengths, terms, context.profile()->cost_on_device(name));
}

template <class T>
CudaAttentionForward<T> device_forward(const AttentionSizes& sizes, const AnyView<const void, 3>& q,
                                       const KeysValues& kv, const AnyView<void, 3>& out, const View<float, 2>& lse) {
  const bool paged = static_cast<bool>(kv.page_table);
  return {.sizes = on_device(sizes),
          .q = device_rows_of<T>(q),
          .k = device_rows_of<T>(kv.keys),
          .v = device_rows_of<T>(kv.values),
          .out = device_rows_of<T>(out),
          .lse = lse.data(),
          .pages = {.page_table = kv.page_table.data(),
                    .kv_lengths = paged ? kv.kv_lengths.data() : nullptr,
                    .page_table_stride = kv.page_table.stride(0),
                    .page_size = kv.page_size,
                    .most_keys = kv.page_table.extent(1) * kv.page_size}};
}

void forward_on_device(Context& context, const AttentionSizes& sizes, const AnyView<const void, 3>& q,
                       const KeysValues& kv, const AnyView<void, 3>& out, const View<float, 2>& lse) {
  const bool paged = static_cast<bool>(kv.page_table);
  count_on_device(context, "attention", sizes, q.type(), paged ? kv.kv_lengths.data() : nullptr,
                  {.flops_of_pair = 4, .bytes_of_query = 2, .bytes_of_key = 2});
  const OperationScope scope(context, "attention", {});
  if (q.type() == ElementType::bf16) {
    return cuda::attention_forward_bf16(context.queue(), device_forward<Bf16>(sizes, q, kv, out, lse));
  }
  cuda::attention_forward(context.queue(), device_forward<float>(sizes, q, kv, out, lse));
}

/// What attention_backward is given.
struct Gradients {
  AnyView<const void, 3> d_out, q, k, v, out;
  View<const float, 2> lse;
  AnyView<void, 3> dq, dk, dv;
  View<float, 2> delta;
};

template <class T>
CudaAttentionBackward<T> device_backward(const AttentionSizes& sizes, const Gradients& p) {
  return {.sizes = on_device(sizes),
          .d_out = device_rows_of<T>(p.d_out),
          .q = device_rows_of<T>(p.q),
          .k = device_rows_of<T>(p.k),
          .v = device_rows_of<T>(p.v),
          .out = device_rows_of<T>(p.out),
          .dq = device_rows_of<T>(p.dq),
          .dk = device_rows_of<T>(p.dk),
          .dv = device_rows_of<T>(p.dv),
          .lse = p.lse.data(),
          .delta = p.delta.data()};
}

void backward_on_device(Context& context, const AttentionSizes& sizes, const Gradients& p) {
  count_on_device(context, "attention backward", sizes, p.q.type(), nullptr,
                  {.flops_of_pair = 10, .bytes_of_query = 4, .bytes_of_key = 4});
  const OperationScope scope(context, "attention backward", {});
  if (p.q.type() == ElementType::bf16) {
    return cuda::attention_backward_bf16(context.queue(), device_backward<Bf16>(sizes, p));
  }
  cuda::attention_backward(context.queue(), device_backward<float>(sizes, p));
}

}  // namespace

int64_t attention_memory(const Context& context, int64_t head_dim) {
  if (context.device() == Device::cuda) return 0;
  const int64_t forward = KEEL_CALL_ISA(context.isa(), attention_forward_scratch(head_dim));
  const int64_t backward = KEEL_CALL_ISA(context.isa(), attention_backward_scratch(head_dim));
  return context.threads() * std::max(forward, backward) * static_cast<int64_t>(sizeof(float));
}

void expect_attention(OperationMemory& memory, const AttentionExtents& z) {
  const int64_t few = z.most_keys > 0 ? cuda_few_rows_bytes(z.sequences, z.kv_heads, z.head_dim, z.most_keys) : 0;
  memory.expect(OperationMemory::scratch,
                few + cuda_query_copy_bytes(z.tokens, z.heads, z.head_dim, element_bytes(z.type)));
}

void attention(Context& context, AnyView<const void, 3> q, const KeysValues& kv, View<const int32_t, 1> cu_seqlens,
               float scale, int64_t window, AnyView<void, 3> out, View<float, 2> lse) {
  AttentionSizes sizes = checked_sizes(context, q, kv.keys, cu_seqlens, scale, window);
  const bool paged = static_cast<bool>(kv.page_table);
  const int64_t rows = paged ? kv.keys.extent(0) : sizes.tokens;
  check_rows("keys", kv.keys, rows, sizes.kv_heads, sizes.head_dim, q.type());
  check_rows("values", kv.values, rows, sizes.kv_heads, sizes.head_dim, q.type());
  check_rows("out", out, sizes.tokens, sizes.heads, sizes.head_dim, q.type());
  if (lse) check_dense("lse", lse, sizes.heads, sizes.tokens);
  if (paged) check_pages(kv, cu_seqlens, context.device() == Device::cpu);
  if (context.device() == Device::cuda) return forward_on_device(context, sizes, q, kv, out, lse);
  if (sizes.attending() == 0) return;
  give_scratch(context, sizes, KEEL_CALL_ISA(context.isa(), attention_forward_scratch(sizes.head_dim)));
  const AttentionForward arguments{.sizes = sizes,
                                   .q = rows_of(q),
                                   .k = rows_of(kv.keys),
                                   .v = rows_of(kv.values),
                                   .out = rows_of(out),
                                   .lse = lse.data(),
                                   .page_table = kv.page_table.data(),
                                   .kv_lengths = paged ? kv.kv_lengths.data() : nullptr,
                                   .page_table_stride = kv.page_table.stride(0),
                                   .page_size = kv.page_size};
  const OperationScope scope(context, "attention",
                             {.flops = 4 * score_flops(sizes, arguments.kv_lengths),
                              .bytes = 2 * query_bytes(sizes) + 2 * key_bytes(sizes, arguments.kv_lengths)});
  KEEL_CALL_ISA(context.isa(), attention_forward(arguments));
}

void attention_backward(Context& context, AnyView<const void, 3> d_out, AnyView<const void, 3> q,
                        AnyView<const void, 3> k, AnyView<const void, 3> v, AnyView<const void, 3> out,
                        View<const float, 2> lse, View<const int32_t, 1> cu_seqlens, float scale, int64_t window,
                        AnyView<void, 3> dq, AnyView<void, 3> dk, AnyView<void, 3> dv, View<float, 2> delta) {
  AttentionSizes sizes = checked_sizes(context, q, k, cu_seqlens, scale, window);
  for (const auto& [name, x] :
       {std::pair<const char*, AnyView<const void, 3>>{"d_out", d_out}, {"out", out}, {"dq", dq}}) {
    check_rows(name, x, sizes.tokens, sizes.heads, sizes.head_dim, q.type());
  }
  for (const auto& [name, x] :
       {std::pair<const char*, AnyView<const void, 3>>{"k", k}, {"v", v}, {"dk", dk}, {"dv", dv}}) {
    check_rows(name, x, sizes.tokens, sizes.kv_heads, sizes.head_dim, q.type());
  }
  check_dense("lse", lse, sizes.heads, sizes.tokens);
  check_dense("delta", delta, sizes.heads, sizes.tokens);
  if (context.device() == Device::cuda) {
    return backward_on_device(context, sizes, {d_out, q, k, v, out, lse, dq, dk, dv, delta});
  }
  if (sizes.attending() == 0) return;
  give_scratch(context, sizes, KEEL_CALL_ISA(context.isa(), attention_backward_scratch(sizes.head_dim)));
  const AttentionBackward arguments{.sizes = sizes,
                                    .d_out = rows_of(d_out),
                                    .q = rows_of(q),
                                    .k = rows_of(k),
                                    .v = rows_of(v),
                                    .out = rows_of(out),
                                    .dq = rows_of(dq),
                                    .dk = rows_of(dk),
                                    .dv = rows_of(dv),
                                    .lse = lse.data(),
                                    .delta = delta.data()};
  const OperationScope scope(
      context, "attention backward",
      {.flops = 10 * score_flops(sizes, nullptr), .bytes = 4 * query_bytes(sizes) + 4 * key_bytes(sizes, nullptr)});
  KEEL_CALL_ISA(context.isa(), attention_backward(arguments));
}

}  // namespace keel
