#include "keel/kernels/linear/linear_cpu.h"

#include "keel/kernels/common/simd.h"

namespace keel::KEEL_ISA {
namespace {

/// What the inner loops take at a time, a cache line of int8, and the vectors in it.
constexpr int64_t kStep = 64, kVectors = kStep / kLanes;
/// Columns whose scales are widened together, into memory that stays in the first-level cache.
constexpr int64_t kPanel = 64 * kScaledWeights;
/// Vectors of sums that registers hold beside what is multiplied.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kSums = 24;
#else
constexpr int kSums = 12;
#endif
/// How far ahead memory is asked for. Hardware alone fetches too little, and the more so the more there is to compute.
constexpr int64_t kBytesAhead = 12 << 10;

[[gnu::always_inline]] inline void fetch_ahead(const void* p, int64_t bytes, int64_t ahead) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(p) + ahead + i, 0, 2);
}

template <class V>
[[gnu::always_inline]] inline V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

// Of __builtin_convertvector g++ 12 makes scalar code.
using Bytes = char __attribute__((vector_size(16)));
using Shorts = short __attribute__((vector_size(16)));
using Ints = int __attribute__((vector_size(kLanes * 4)));

/// kLanes int8 as floats.
[[gnu::always_inline]] inline Vec widen_int8(const int8_t* p) {
#if defined(__AVX512F__)
  const auto wide = reinterpret_cast<Ints>(__builtin_ia32_pmovsxbd512_mask(load<Bytes>(p), Ints{}, -1));
#else
  Bytes bytes{};
  __builtin_memcpy(&bytes, p, kLanes);
#if defined(__AVX2__)
  const auto wide = reinterpret_cast<Ints>(__builtin_ia32_pmovsxbd256(bytes));
#else
  bytes = __builtin_shufflevector(bytes, bytes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  auto halves = reinterpret_cast<Shorts>(bytes);
  halves = __builtin_shufflevector(halves, halves, 0, 8, 1, 9, 2, 10, 3, 11);
  const auto wide = reinterpret_cast<Ints>(halves) >> 24;
#endif
#endif
  return __builtin_convertvector(wide, Vec);
}

/// kLanes 16-bit words, each in the upper half of a lane: as floats, if they are bf16.
[[gnu::always_inline]] inline Words widen_words(const uint16_t* p) {
#if defined(__AVX512F__)
  using Many = short __attribute__((vector_size(32)));
  return reinterpret_cast<Words>(__builtin_ia32_pmovzxwd512_mask(load<Many>(p), Ints{}, -1)) << 16;
#elif defined(__AVX2__)
  return reinterpret_cast<Words>(__builtin_ia32_pmovzxwd256(load<Shorts>(p))) << 16;
#else
  Shorts halves{};
  __builtin_memcpy(&halves, p, kLanes * 2);
  return reinterpret_cast<Words>(__builtin_shufflevector(Shorts{}, halves, 0, 8, 1, 9, 2, 10, 3, 11));
#endif
}

/// kLanes fp16 as floats, exactly, subnormals, infinities and NaN included.
[[gnu::always_inline]] inline Vec widen_f16(const uint16_t* p) {
#if defined(__AVX512F__)
  using Many = short __attribute__((vector_size(32)));
  constexpr int kNoException = 8;
  return __builtin_ia32_vcvtph2ps512_mask(load<Many>(p), Vec{}, -1, kNoException);
#elif defined(__F16C__)
  return __builtin_ia32_vcvtph2ps256(load<Shorts>(p));
#else
  // A float of the same fraction has an exponent that is 112 too small.
  const Words bits = widen_words(p), sign = bits & 0x80000000U, rest = (bits & 0x7FFF0000U) >> 3;
  const Words finite = reinterpret_cast<Words>(reinterpret_cast<Vec>(rest) * 0x1p112F);
  const auto is_finite = reinterpret_cast<Words>(rest < 0x0F800000U);
  return reinterpret_cast<Vec>(sign | (finite & is_finite) | ((rest | 0x7F800000U) & ~is_finite));
#endif
}

void widen_scales(const uint16_t* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Columns{i}.store(to, widen_f16(from + i));
  if (i == count) return;
  if (count >= kLanes) {  // the last ones once more
    Columns{count - kLanes}.store(to, widen_f16(from + count - kLanes));
    return;
  }
  uint16_t few[kLanes] = {};
  for (int64_t k = 0; k < count; ++k) few[k] = from[k];
  const Vec wide = widen_f16(few);
  for (int64_t k = 0; k < count; ++k) to[k] = wide[k];
}

/// A row in each type. After begin_row and begin_panel, vector(c) is columns c .. c + kLanes - 1 of that panel, and add
/// adds the products of kStep columns by those of R rows to the sums.
template <class T>
struct PlainRow {
  static constexpr int64_t kBytes = sizeof(T);
  const T* values;

  void begin_row(const WeightMatrix& W, int64_t row) { values = static_cast<const T*>(W.values) + row * W.columns; }
  void begin_panel(int64_t, int64_t) {}
  [[gnu::always_inline]] Vec vector(int64_t c) const {
    if constexpr (kBytes == 4) return load<Vec>(values + c);
    if constexpr (kBytes == 2) return reinterpret_cast<Vec>(widen_words(values + c));
  }
  float one(int64_t c) const {
    if constexpr (kBytes == 4) return values[c];
    if constexpr (kBytes == 2) return __builtin_bit_cast(float, uint32_t{values[c]} << 16);
  }
};

struct ScaledRow {
  static constexpr int64_t kBytes = 1;
  const int8_t* values;
  const uint16_t* scales;
  float panel[kPanel / kScaledWeights];
  int64_t begin;

  void begin_row(const WeightMatrix& W, int64_t row) {
    values = static_cast<const int8_t*>(W.values) + row * W.columns;
    scales = W.scales + row * ((W.columns + kScaledWeights - 1) / kScaledWeights);
  }
  void begin_panel(int64_t first, int64_t end) {
    begin = first;
    const uint16_t* from = scales + first / kScaledWeights;
    const int64_t count = (end - first + kScaledWeights - 1) / kScaledWeights;
    for (int64_t i = 0; i < count; i += 32) fetch_ahead(from + i, 64, kBytesAhead / 16);
    widen_scales(from, count, panel);
  }
  [[gnu::always_inline]] float scale(int64_t c) const {
    return panel[static_cast<uint64_t>(c - begin) / kScaledWeights];
  }
  [[gnu::always_inline]] Vec vector(int64_t c) const { return widen_int8(values + c) * scale(c); }
  float one(int64_t c) const { return static_cast<float>(values[c]) * scale(c); }
};

/// Sum over columns c .. end - 1, fewer than a vector.
template <class Row>
[[gnu::noinline]] float rest(const Row& w, const float* x, int64_t c, int64_t end) {
  float total = 0;
  for (; c < end; ++c) total += w.one(c) * x[c];
  return total;
}

/// sums += a vector of each of J rows of W, from column c on, times those of R rows.
template <class Row, int J, int R>
[[gnu::always_inline]] inline void multiply_add(const Row (&w)[J], const float* x, int64_t stride, int64_t c,
                                                Vec (&sums)[J][R]) {
  Vec weights[J];
#pragma GCC unroll 4
  for (int j = 0; j < J; ++j) weights[j] = w[j].vector(c);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const Vec x_at = load<Vec>(x + r * stride);
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) sums[j][r] += weights[j] * x_at;
  }
}

/// Rows o .. o + J - 1 of W with R rows of X from row n on: each weight is widened once for all R.
template <class Row, int J, int R>
[[gnu::always_inline]] inline void tile(const LinearRows& p, int64_t o, int64_t n) {
  Row w[J];
  for (int j = 0; j < J; ++j) w[j].begin_row(p.W, o + j);
  const float* x = p.x + n * p.x_stride;
  Vec sums[J][R] = {};
  const int64_t d = p.W.columns;
  int64_t c = 0;
  for (int64_t begin = 0; begin < d; begin += kPanel) {
    const int64_t end = begin + kPanel < d ? begin + kPanel : d;
    for (int j = 0; j < J; ++j) w[j].begin_panel(begin, end);
    for (; c + kStep <= end; c += kStep) {
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) fetch_ahead(w[j].values + c, kStep * Row::kBytes, kBytesAhead);
      if constexpr (Row::kBytes == 1 && R == 1) {  // fewer multiplications by scales
#pragma GCC unroll 2
        for (int64_t half = c; half < c + kStep; half += kScaledWeights) {
          Vec products[J] = {};
#pragma GCC unroll 8
          for (int64_t at = half; at < half + kScaledWeights; at += kLanes) {
            const Vec x_at = load<Vec>(x + at);
#pragma GCC unroll 4
            for (int j = 0; j < J; ++j) products[j] += widen_int8(w[j].values + at) * x_at;
          }
#pragma GCC unroll 4
          for (int j = 0; j < J; ++j) sums[j][0] += products[j] * w[j].scale(half);
        }
      } else {
#pragma GCC unroll 16
        for (int64_t at = c; at < c + kStep; at += kLanes) multiply_add<Row, J, R>(w, x + at, p.x_stride, at, sums);
      }
    }
    for (; c + kLanes <= end; c += kLanes) multiply_add<Row, J, R>(w, x + c, p.x_stride, c, sums);
  }
#pragma GCC unroll 4
  for (int j = 0; j < J; ++j) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      float y = sum(sums[j][r]);
      if (c < d) y += rest(w[j], x + r * p.x_stride, c, d);
      p.y[(n + r) * p.y_stride + o + j] = y;
    }
  }
}

/// All rows of X, as many at a time as there are registers for their sums, while these rows of W lie in the first-level
/// cache.
template <class Row, int J>
void all_rows(const LinearRows& p, int64_t o) {
  int64_t n = 0;
  if constexpr (J * 12 <= kSums) {
    for (; n + 12 <= p.N; n += 12) tile<Row, J, 12>(p, o, n);
  }
  if constexpr (J * 8 <= kSums) {
    for (; n + 8 <= p.N; n += 8) tile<Row, J, 8>(p, o, n);
  }
  for (; n + 4 <= p.N; n += 4) tile<Row, J, 4>(p, o, n);
  if (p.N - n == 3) tile<Row, J, 3>(p, o, n);
  if (p.N - n == 2) tile<Row, J, 2>(p, o, n);
  if (p.N - n == 1) tile<Row, J, 1>(p, o, n);
}

template <class Row>
void rows_of(const LinearRows& p) {
  int64_t o = 0;
  if constexpr (Row::kBytes == 1) {  // more arithmetic: loads of x are shared by more rows
    for (; p.N == 1 && o + 4 <= p.W.rows; o += 4) tile<Row, 4, 1>(p, o, 0);
  }
  const bool has_sums_for_two = p.N < 8 || 16 <= kSums;
  for (; has_sums_for_two && o + 2 <= p.W.rows; o += 2) all_rows<Row, 2>(p, o);
  for (; o < p.W.rows; ++o) all_rows<Row, 1>(p, o);
}

template <class Row>
void widen(const WeightMatrix& W, float* y, int64_t stride) {
  const int64_t d = W.columns;
  for (int64_t o = 0; o < W.rows; ++o) {
    Row w;
    w.begin_row(W, o);
    float* to = y + o * stride;
    int64_t c = 0;
    for (int64_t begin = 0; begin < d; begin += kPanel) {
      const int64_t end = begin + kPanel < d ? begin + kPanel : d;
      w.begin_panel(begin, end);
      for (; c + kLanes <= end; c += kLanes) Columns{c}.store(to, w.vector(c));
    }
    for (; c < d; ++c) to[c] = w.one(c);
  }
}

}  // namespace

void linear_rows(const LinearRows& p) {
  if (p.W.type == WeightType::fp32) return rows_of<PlainRow<float>>(p);
  if (p.W.type == WeightType::bf16) return rows_of<PlainRow<uint16_t>>(p);
  rows_of<ScaledRow>(p);
}

void widen_weights(const WeightMatrix& W, float* y, int64_t stride) {
  if (W.type == WeightType::fp32) return widen<PlainRow<float>>(W, y, stride);
  if (W.type == WeightType::bf16) return widen<PlainRow<uint16_t>>(W, y, stride);
  widen<ScaledRow>(W, y, stride);
}

}  // namespace keel::KEEL_ISA
