#pragma once

// How device code goes over the rows of a matrix: four neighbouring columns at a time, a row by a team of threads. For
// *_cuda.cu only.

#include <cstdint>

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/device.cuh"

namespace keel {

// ---- four values, element by element

__device__ inline float4 splat(float a) {
  return make_float4(a, a, a, a);
}
__device__ inline float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ inline float4 operator-(float4 a, float4 b) {
  return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}
__device__ inline float4 operator*(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
__device__ inline float4 operator*(float a, float4 b) {
  return make_float4(a * b.x, a * b.y, a * b.z, a * b.w);
}
__device__ inline float4 operator-(float4 a, float b) {
  return make_float4(a.x - b, a.y - b, a.z - b, a.w - b);
}
// Sums of products say what is rounded, so that every kernel that is made of them rounds alike.
/// a b + c.
__device__ inline float4 fma4(float4 a, float4 b, float4 c) {
  return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}
__device__ inline float4 fma4(float a, float4 b, float4 c) {
  return fma4(make_float4(a, a, a, a), b, c);
}
__device__ inline float dot(float4 a, float4 b) {
  return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, a.w * b.w)));
}
__device__ inline float total(float4 a) {
  return (a.x + a.y) + (a.z + a.w);
}
/// f of each.
template <class F>
__device__ inline float4 each(float4 a, F f) {
  return make_float4(f(a.x), f(a.y), f(a.z), f(a.w));
}

// ---- columns and rows

/// Four neighbouring columns of whatever row. What lies beyond the row's end loads as 0 and is not stored. kWide: the four
/// lie in the row or beyond it together, and one access takes them.
template <bool kWide>
struct Columns {
  int c;      ///< the first
  int count;  ///< from it to the row's end; none of them in the row: not positive
  int group;  ///< its number among those of the thread, where the layout keeps them in registers

  template <class T>
  __device__ float4 load(const T* row) const {
    if constexpr (kWide) return count > 0 ? load4(row + c) : splat(0);
    return make_float4(count > 0 ? load1(row + c) : 0, count > 1 ? load1(row + c + 1) : 0,
                       count > 2 ? load1(row + c + 2) : 0, count > 3 ? load1(row + c + 3) : 0);
  }
  /// `absent` for a null row.
  template <class T>
  __device__ float4 load_or(const T* row, float absent) const {
    return row == nullptr ? splat(absent) : load(row);
  }
  template <class T>
  __device__ void store(T* row, float4 values) const {
    if constexpr (kWide) {
      if (count > 0) store4_global(row + c, values);
    } else {
      if (count > 0) store1(row + c, values.x);
      if (count > 1) store1(row + c + 1, values.y);
      if (count > 2) store1(row + c + 2, values.z);
      if (count > 3) store1(row + c + 3, values.w);
    }
  }
  /// 0 for what lies beyond the row.
  __device__ float4 keep(float4 v) const {
    return make_float4(count > 0 ? v.x : 0, count > 1 ? v.y : 0, count > 2 ? v.z : 0, count > 3 ? v.w : 0);
  }
};

/// The rows of a matrix, or of none.
template <class T>
struct Matrix {
  T* data;
  int64_t stride;
  __host__ Matrix(const View<T, 2>& view) : data(view.data()), stride(view.stride(0)) {}  // NOLINT
  /// Of a view whose elements are T, as element_type() says.
  template <class Access>
  __host__ Matrix(const AnyView<Access, 2>& view)
      : data(static_cast<T*>(view.data())), stride(view.stride(0)) {}  // NOLINT
  __device__ T* operator[](int64_t r) const { return data == nullptr ? nullptr : data + r * stride; }
};

/// The same matrix by the type that device code computes with.
inline View<__nv_bfloat16, 2> device_bf16(const View<Bf16, 2>& view) {
  return {reinterpret_cast<__nv_bfloat16*>(view.data()), view.extents(), view.strides()};
}
inline View<const __nv_bfloat16, 2> device_bf16(const View<const Bf16, 2>& view) {
  return {reinterpret_cast<const __nv_bfloat16*>(view.data()), view.extents(), view.strides()};
}

/// body(std::type_identity<T>()) with the type that device code has for elements of this one.
template <class Body>
void with_element_type(ElementType type, Body body) {
  if (type == ElementType::bf16) return body(std::type_identity<__nv_bfloat16>());
  body(std::type_identity<float>());
}

/// body(types of the two) where the second is fp32 or as the first.
template <class Body>
void with_element_types(ElementType first, ElementType second, Body body) {
  with_element_type(first, [&](auto type) {
    if (first == second) return body(type, type);
    body(type, std::type_identity<float>());
  });
}

/// Whether groups of four columns of all rows can be accessed whole.
template <class AnyOrTyped>
bool has_wide_rows(const AnyOrTyped& view, int64_t bytes) {
  const int last = static_cast<int>(view.extents().size()) - 1;
  bool wide = reinterpret_cast<uintptr_t>(view.data()) % (4 * bytes) == 0 && view.extent(last) % 4 == 0;
  for (int i = 0; i < last; ++i) wide = wide && view.stride(i) % 4 == 0;
  return wide;
}
template <class T, int Rank>
bool has_wide_rows(const View<T, Rank>& view) {
  return has_wide_rows(view, sizeof(T));
}
template <class Access, int Rank>
bool has_wide_rows(const AnyView<Access, Rank>& view) {
  return has_wide_rows(view, element_bytes(view.type()));
}
template <class... Views>
bool have_wide_rows(const Views&... views) {
  return (... && (!views || has_wide_rows(views)));
}

// ---- a row and its team

/// kThreads threads hold a row, of at most 4 * kThreads * kGroups values, in registers.
template <int kThreads_, int kGroups_>
struct RowInRegisters {
  static constexpr int kThreads = kThreads_, kGroups = kGroups_;
  static constexpr int kTeams = kThreads == kWarp ? 4 : 1;  ///< in a block
  static constexpr int kMostThreads = kThreads * kTeams;    ///< of a block
  static constexpr bool kWide = true;
};

/// A block goes over a row of any length in loops, which begin the same way: sums have the same bits as with the layout
/// above. Values are read again when they are wanted again.
template <bool kWide_>
struct RowInLoops {
  static constexpr int kGroups = 0, kTeams = 1;
  static constexpr int kMostThreads = 1024;  ///< 512 run; bounds of these make ptxas of nvcc 13 spill a register
  static constexpr bool kWide = kWide_;
};

template <class Layout>
inline constexpr bool kInRegisters = Layout::kGroups > 0;

/// The threads that share a row of d values: a block, or one of several in it.
template <class Layout>
class RowTeam {
 public:
  using At = Columns<Layout::kWide>;
  __device__ explicit RowTeam(int d) : d_(d), thread_(threadIdx.x), number_(blockIdx.x) {
    if constexpr (Layout::kTeams > 1) {
      thread_ = threadIdx.x % kWarp;
      number_ = static_cast<int64_t>(blockIdx.x) * Layout::kTeams + threadIdx.x / kWarp;
    }
  }
  /// Of all teams.
  __device__ int64_t number() const { return number_; }
  __device__ bool is_first_thread() const { return thread_ == 0; }

  /// body(at) for the columns of this thread, of a row's end also for some beyond it.
  template <class Body>
  __device__ void for_columns(Body body) const {
    if constexpr (kInRegisters<Layout>) {
#pragma unroll
      for (int i = 0; i < Layout::kGroups; ++i) {
        const int c = 4 * (thread_ + i * Layout::kThreads);
        body(At{c, d_ - c, i});
      }
    } else {
      for (int c = 4 * thread_; c < d_; c += 4 * static_cast<int>(blockDim.x)) body(At{c, d_ - c, 0});
    }
  }

  /// The sums over the team of each of N values; every thread gets them. `turn` is another number, odd or even, than in
  /// the call before.
  template <class T, int N>
  __device__ void sum(T (&values)[N], int64_t turn) const {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = warp_sum(values[i]);
    if constexpr (Layout::kTeams == 1) {
      KEEL_SHARED(T, parts, [2][N][kWarp]);
      auto& own = parts[turn % 2];
      const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
      if (lane == 0) {
#pragma unroll
        for (int i = 0; i < N; ++i) own[i][warp] = values[i];
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = warp_sum(lane < warps ? own[i][lane] : T(0));
    }
  }

 private:
  int d_, thread_;
  int64_t number_;
};

/// What a thread loaded of a row: kept, or loaded again.
template <class Layout, class Values>
class KeptValues {
 public:
  using At = Columns<Layout::kWide>;
  template <class Load>
  __device__ Values load(At at, Load load) {
    const Values values = load(at);
    if constexpr (kInRegisters<Layout>) kept_[at.group] = values;
    return values;
  }
  template <class Load>
  __device__ Values again(At at, Load load) const {
    if constexpr (kInRegisters<Layout>) {
      return kept_[at.group];
    } else {
      return load(at);
    }
  }

 private:
  Values kept_[kInRegisters<Layout> ? Layout::kGroups : 1];
};

/// A vector that goes with every row; null: 1 everywhere. Kept where there are registers for it.
template <class Layout>
class RowVector {
 public:
  using At = Columns<Layout::kWide>;
  static constexpr bool kKept = kInRegisters<Layout> && Layout::kGroups <= 2;
  __device__ RowVector(const RowTeam<Layout>& team, const float* vector) : vector_(vector) {
    if constexpr (kKept) team.for_columns([&](At at) { kept_[at.group] = at.load_or(vector, 1); });
  }
  __device__ float4 operator()(At at) const {
    if constexpr (kKept) {
      return kept_[at.group];
    } else {
      return at.load_or(vector_, 1);
    }
  }

 private:
  const float* vector_;
  float4 kept_[kKept ? Layout::kGroups : 1];
};

/// (sum_squares / d + eps)^(-1/2).
__device__ inline float inverse_rms(float sum_squares, int d, float eps) {
  return 1.0F / sqrtf(sum_squares / static_cast<float>(d) + eps);
}

// ---- on the host

/// body(layout) with the layout of rows of d values.
template <class Body>
void with_row_layout(int64_t d, bool wide, Body body) {
  if (!wide) return body(RowInLoops<false>());
  if (d <= 128) return body(RowInRegisters<32, 1>());
  if (d <= 256) return body(RowInRegisters<32, 2>());
  if (d <= 512) return body(RowInRegisters<64, 2>());
  if (d <= 1024) return body(RowInRegisters<128, 2>());
  if (d <= 2048) return body(RowInRegisters<256, 2>());
  if (d <= 4096) return body(RowInRegisters<512, 2>());
  if (d <= 8192) return body(RowInRegisters<512, 4>());
  body(RowInLoops<true>());
}

/// Threads of a team, by width alone.
inline int row_threads(int64_t d) {
  int threads = kWarp;
  while (threads < 512 && 8 * threads < d) threads *= 2;
  return threads;
}

/// Launches a kernel for so many teams over rows of d values.
template <class Layout, class... Parameters, class... Arguments>
void launch_teams(CudaQueue& queue, void (*kernel)(Parameters...), int64_t teams, int64_t d, Arguments&&... arguments) {
  const int threads = kInRegisters<Layout> ? Layout::kMostThreads : row_threads(d);
  const int64_t blocks = (teams + Layout::kTeams - 1) / Layout::kTeams;
  launch(queue, kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), 0,
         std::forward<Arguments>(arguments)...);
}

}  // namespace keel
