#include "keel/kernels/rms_norm/rms_norm_cuda.h"

#include <limits>
#include <string>

#include "keel/base/error.h"
#include "keel/kernels/common/column_sum.cuh"

namespace keel {
namespace {

/// Head h of row n.
struct HeadOfRow {
  int64_t n;
  unsigned h;
  __device__ HeadOfRow(int64_t r, unsigned heads) : n(r), h(0) {
    if (heads == 1) return;
    n = static_cast<unsigned>(r) / heads;
    h = static_cast<unsigned>(r) % heads;
  }
};

/// The heads of [N, heads, d].
template <class T>
struct Heads {
  T* data;
  int64_t row, head;
  template <class Access>
  __host__ Heads(const AnyView<Access, 3>& x)  // NOLINT
      : data(static_cast<T*>(x.data())), row(x.stride(0)), head(x.stride(1)) {}
  __device__ T* operator[](HeadOfRow at) const { return data + at.n * row + at.h * head; }
};

/// How many of them there are, all in all.
int64_t count_heads(const AnyView<const void, 3>& x) {
  const int64_t count = x.extent(0) * x.extent(1);
  if (x.extent(1) > 1 && count > std::numeric_limits<unsigned>::max())
    throw Error(ErrorKind::shape, std::to_string(count) + " heads are more than a device counts", "rms_norm");
  return count;
}

template <class T>
struct Forward {
  Heads<const T> x;
  const float* w;
  Heads<T> y;
  float* s;
  int64_t rows;
  unsigned heads;
  int d;
  float eps;
};

template <class Layout, class T>
__global__ void __launch_bounds__(Layout::kMostThreads) forward(const Forward<T> norm) {
  using At = Columns<Layout::kWide>;
  const RowTeam<Layout> team(norm.d);
  const int64_t r = team.number();
  if (r >= norm.rows) return;
  const HeadOfRow head(r, norm.heads);
  const T* from = norm.x[head];
  T* to = norm.y[head];
  const RowVector<Layout> w(team, norm.w);
  KeptValues<Layout, float4> kept;
  const auto load = [&](At at) { return at.load(from); };
  float squares[1] = {};
  team.for_columns([&](At at) {
    const float4 x = kept.load(at, load);
    squares[0] += dot(x, x);
  });
  team.sum(squares, 0);
  const float s = inverse_rms(squares[0], norm.d, norm.eps);
  if (team.is_first_thread()) norm.s[r] = s;
  team.for_columns([&](At at) { at.store(to, s * kept.again(at, load) * w(at)); });
}

template <class T>
struct Backward {
  Heads<const T> dy, x;
  const float *w, *s;
  Heads<T> dx;
  bool accumulate_dx;
  int64_t rows;
  unsigned heads;
  int d;
  float* chunks;
  int64_t stride;
};

struct BackwardValues {
  float4 dy, x;
};

/// A team takes a chunk of rows.
template <class Layout, class T>
__global__ void __launch_bounds__(Layout::kMostThreads) backward(const Backward<T> norm) {
  using At = Columns<Layout::kWide>;
  const RowTeam<Layout> team(norm.d);
  const int64_t begin = team.number() * kChunkRows;
  const int rows = chunk_rows(begin, norm.rows);
  if (rows == 0) return;
  const RowVector<Layout> w(team, norm.w);
  ColumnSum<Layout> dw(norm.chunks + team.number() * norm.stride);
  for (int i = 0; i < rows; ++i) {
    const HeadOfRow head(begin + i, norm.heads);
    const T *dy = norm.dy[head], *x = norm.x[head];
    T* dx = norm.dx[head];
    const float s = norm.s[begin + i];
    KeptValues<Layout, BackwardValues> kept;
    KeptValues<Layout, float4> before;
    const auto load = [&](At at) { return BackwardValues{at.load(dy), at.load(x)}; };
    const auto load_before = [&](At at) { return at.load_or(norm.accumulate_dx ? dx : nullptr, 0); };
    float sums[1] = {};
    team.for_columns([&](At at) {
      const BackwardValues v = kept.load(at, load);
      if constexpr (kInRegisters<Layout>) before.load(at, load_before);
      sums[0] += dot(w(at) * v.dy, v.x);
    });
    team.sum(sums, i);
    const float mean = s * sums[0] / static_cast<float>(norm.d);  // of w dy xh
    team.for_columns([&](At at) {
      const BackwardValues v = kept.again(at, load);
      const float4 xh = s * v.x, gradient = s * fma4(-mean, xh, w(at) * v.dy);
      dw.add(at, v.dy * xh, i == 0);
      at.store(dx, norm.accumulate_dx ? before.again(at, load_before) + gradient : gradient);
    });
  }
  dw.finish(team);
}

}  // namespace

void keel_cuda_rms_norm(CudaQueue& queue, const AnyView<const void, 3>& x, const float* w, float eps,
                        const AnyView<void, 3>& y, float* s) {
  const int64_t rows = count_heads(x), d = x.extent(2);
  const auto heads = static_cast<unsigned>(x.extent(1));
  with_element_type(x.type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Forward<T> norm{x, w, y, s, rows, heads, static_cast<int>(d), eps};
    with_row_layout(d, have_wide_rows(x, y) && is_aligned(w, 16), [&](auto layout) {
      using Layout = decltype(layout);
      launch_teams<Layout>(queue, forward<Layout, T>, rows, d, norm);
    });
  });
}

void keel_cuda_rms_norm_backward(CudaQueue& queue, const RmsNormBackward& p) {
  const int64_t rows = count_heads(p.x), d = p.x.extent(2);
  const auto heads = static_cast<unsigned>(p.x.extent(1));
  ChunkSums sums(queue, p.sums, rows, d, p.partial);
  if (sums.takes_rows()) {
    with_element_type(p.x.type(), [&](auto type) {
      using T = typename decltype(type)::type;
      const Backward<T> norm{
          p.dy, p.x, p.w, p.s, p.dx, p.accumulate_dx, rows, heads, static_cast<int>(d), sums.chunks(), sums.stride()};
      with_row_layout(d, have_wide_rows(p.dy, p.x, p.dx) && is_aligned(p.w, 16), [&](auto layout) {
        using Layout = decltype(layout);
        launch_teams<Layout>(queue, backward<Layout, T>, sums.count(), d, norm);
      });
    });
  }
  sums.add(0, d, p.dw);
  sums.add_up();
}

}  // namespace keel
