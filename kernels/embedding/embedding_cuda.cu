// Positions are put in the order of their tokens, those of a token ascending, by digits from the lowest on; then each row
// of the table has one owner for each of its blocks of columns, which adds up in that order.

#include "keel/kernels/embedding/embedding_cuda.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/row_kernel.cuh"

namespace keel {
namespace {

constexpr int kDigitBits = 9, kDigits = kTokenOrderDigits;
static_assert(kDigits == 1 << kDigitBits);
/// Positions that a block puts in order, a thread each.
constexpr int kTile = kTokenOrderTile;
constexpr int kScanThreads = 1024;
constexpr int kAddThreads = 128;
/// Rows whose values are on their way to a thread together.
constexpr int kAhead = 8;

/// Tokens and their positions in some order; positions null: 0, 1, 2, ...
struct Order {
  int32_t *tokens, *positions;
};

__device__ inline int digit_of(int32_t token, int shift) {
  return (token >> shift) & (kDigits - 1);
}

/// counts[digit][tile]
__global__ void __launch_bounds__(kTile)
    count_digits(const int32_t* __restrict__ tokens, int64_t count, int shift, int32_t* __restrict__ counts) {
  static_assert(kTile == kDigits);
  KEEL_SHARED(int, of_digit, [kDigits]);
  of_digit[threadIdx.x] = 0;
  __syncthreads();
  const int64_t n = blockIdx.x * int64_t{kTile} + threadIdx.x;
  if (n < count) atomicAdd(&of_digit[digit_of(tokens[n], shift)], 1);
  __syncthreads();
  counts[threadIdx.x * int64_t{gridDim.x} + blockIdx.x] = of_digit[threadIdx.x];
}

/// counts[i] = sum of counts[j] over j < i, by one block.
__global__ void __launch_bounds__(kScanThreads) sum_before(int32_t* counts, int64_t size) {
  KEEL_SHARED(int, sums, [kScanThreads]);
  const int t = threadIdx.x;
  const int64_t part = (size + kScanThreads - 1) / kScanThreads;
  const int64_t begin = min(t * part, size), end = min(begin + part, size);
  int own = 0;
  for (int64_t i = begin; i < end; ++i) own += counts[i];
  sums[t] = own;
  __syncthreads();
  for (int reach = 1; reach < kScanThreads; reach *= 2) {
    const int before = t >= reach ? sums[t - reach] : 0;
    __syncthreads();
    sums[t] += before;
    __syncthreads();
  }
  int sum = sums[t] - own;
  for (int64_t i = begin; i < end; ++i) {
    const int value = counts[i];
    counts[i] = sum;
    sum += value;
  }
}

/// Moves each position to its place: after those with smaller digits, and those before it with the same.
__global__ void __launch_bounds__(kTile)
    move_by_digit(Order from, int64_t count, int shift, const int32_t* __restrict__ places, Order to) {
  KEEL_SHARED(int4, digits, [kTile / 4]);
  int* digit_at = reinterpret_cast<int*>(digits);
  const int t = threadIdx.x;
  const int64_t n = blockIdx.x * int64_t{kTile} + t;
  const int32_t token = n < count ? from.tokens[n] : 0;
  const int digit = digit_of(token, shift);
  digit_at[t] = digit;
  __syncthreads();
  if (n >= count) return;
  int before = 0;
  for (int i = 0; i < t / 4; ++i) {
    const int4 four = digits[i];
    before +=
        (four.x == digit ? 1 : 0) + (four.y == digit ? 1 : 0) + (four.z == digit ? 1 : 0) + (four.w == digit ? 1 : 0);
  }
  for (int i = t / 4 * 4; i < t; ++i) before += digit_at[i] == digit ? 1 : 0;
  const int64_t place = places[digit * int64_t{gridDim.x} + blockIdx.x] + int64_t{before};
  to.tokens[place] = token;
  to.positions[place] = from.positions == nullptr ? static_cast<int32_t>(n) : from.positions[n];
}

template <int kWidth>
struct Values;
template <>
struct Values<4> {
  float4 v;
  template <class T>
  __device__ static Values load(const T* from) {
    return {load4(from)};
  }
  __device__ void add(const Values& o) { v = make_float4(v.x + o.v.x, v.y + o.v.y, v.z + o.v.z, v.w + o.v.w); }
  __device__ void store(float* to) const { store4(to, v); }
};
template <>
struct Values<1> {
  float v;
  template <class T>
  __device__ static Values load(const T* from) {
    return {load1(from)};
  }
  __device__ void add(const Values& o) { v += o.v; }
  __device__ void store(float* to) const { *to = v; }
};

/// The warp at the first place of a token adds up its rows, kWidth columns a lane.
template <class T, int kWidth>
__global__ void __launch_bounds__(kAddThreads, 8)
    add_rows(Order order, int64_t count, const T* __restrict__ dy, int64_t d, float* __restrict__ d_table) {
  const int lane = threadIdx.x % kWarp;
  const int64_t first = blockIdx.x * int64_t{kAddThreads / kWarp} + threadIdx.x / kWarp;
  if (first >= count) return;
  const int32_t token = order.tokens[first];
  if (first > 0 && order.tokens[first - 1] == token) return;
  const int64_t column = (blockIdx.y * int64_t{kWarp} + lane) * kWidth;
  const bool is_column = column < d;
  const int64_t safe_column = is_column ? column : 0;
  const auto term = [&](int64_t row) { return Values<kWidth>::load(dy + row * d + safe_column); };
  float* to = d_table + token * d + safe_column;
  Values<kWidth> sum{};
  if (is_column) sum = Values<kWidth>::load(to);
  for (int64_t begin = first;; begin += kWarp) {
    const int64_t place = begin + lane;
    const bool is_same = place < count && order.tokens[place] == token;
    const int32_t position = is_same ? order.positions[place] : 0;
    const int rows = __popc(__ballot_sync(kAllLanes, is_same));
    int at = 0;
    for (; at + kAhead <= rows; at += kAhead) {
      Values<kWidth> terms[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) terms[i] = term(__shfl_sync(kAllLanes, position, at + i));
#pragma unroll
      for (int i = 0; i < kAhead; ++i) sum.add(terms[i]);
    }
    for (; at < rows; ++at) sum.add(term(__shfl_sync(kAllLanes, position, at)));
    if (rows < kWarp) break;
  }
  if (is_column) sum.store(to);
}

/// Leaves the order in one of the two, which it returns.
Order sort(CudaQueue& queue, const int32_t* tokens, int64_t count, int64_t V) {
  const int64_t tiles = chunk_count(count, kTile);
  auto* memory = static_cast<int32_t*>(queue.token_order.at_least(token_order_bytes(count)));
  Order from{const_cast<int32_t*>(tokens), nullptr}, to{memory, memory + count}, other{to.positions + count, nullptr};
  other.positions = other.tokens + count;
  int32_t* counts = other.positions + count;
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(V - 1))));
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    const dim3 grid(static_cast<unsigned>(tiles));
    launch(queue, count_digits, grid, kTile, 0, from.tokens, count, shift, counts);
    launch(queue, sum_before, 1, kScanThreads, 0, counts, kDigits * tiles);
    launch(queue, move_by_digit, grid, kTile, 0, from, count, shift, counts, to);
    from = std::exchange(to, shift == 0 ? other : from);
  }
  return from;
}

}  // namespace

void keel_cuda_embedding_backward(CudaQueue& queue, const int32_t* tokens, int64_t count, AnyView<const void, 2> dy,
                                  int64_t V, int64_t d, float* d_table) {
  if (count == 0 || d == 0) return;
  const Order order = sort(queue, tokens, count, V);
  const bool four = has_wide_rows(dy) && is_aligned(d_table, 16);
  const dim3 grid(static_cast<unsigned>(chunk_count(count, kAddThreads / kWarp)),
                  static_cast<unsigned>(chunk_count(d, kWarp * (four ? 4 : 1))));
  with_element_type(dy.type(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch(queue, four ? add_rows<T, 4> : add_rows<T, 1>, grid, kAddThreads, 0, order, count,
           static_cast<const T*>(dy.data()), d, d_table);
  });
}

}  // namespace keel
