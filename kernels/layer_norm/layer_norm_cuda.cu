#include "keel/kernels/layer_norm/layer_norm_cuda.h"

#include "keel/kernels/common/column_sum.cuh"

namespace keel {
namespace {

template <class T>
struct Forward {
  Matrix<const T> x;
  const float *w, *bias;
  Matrix<T> y;
  float *r, *mean;
  int64_t rows;
  int d;
  float eps;
};

template <class Layout, class T>
__global__ void __launch_bounds__(Layout::kMostThreads) forward(const Forward<T> norm) {
  using At = Columns<Layout::kWide>;
  const RowTeam<Layout> team(norm.d);
  const int64_t i = team.number();
  if (i >= norm.rows) return;
  const T* from = norm.x[i];
  T* to = norm.y[i];
  const RowVector<Layout> w(team, norm.w), bias(team, norm.bias);
  KeptValues<Layout, float4> kept;
  const auto load = [&](At at) { return at.load(from); };
  float sum[1] = {}, squares[1] = {};
  team.for_columns([&](At at) { sum[0] += total(kept.load(at, load)); });
  team.sum(sum, 0);
  const float mean = sum[0] / static_cast<float>(norm.d);
  team.for_columns([&](At at) {
    const float4 centred = at.keep(kept.again(at, load) - mean);
    squares[0] += dot(centred, centred);
  });
  team.sum(squares, 1);
  const float r = inverse_rms(squares[0], norm.d, norm.eps);
  if (team.is_first_thread()) {
    norm.mean[i] = mean;
    norm.r[i] = r;
  }
  team.for_columns([&](At at) { at.store(to, fma4(r * (kept.again(at, load) - mean), w(at), bias(at))); });
}

template <class T>
struct Backward {
  Matrix<const T> dy, x;
  const float *w, *r, *mean;
  Matrix<T> dx;
  bool accumulate_dx;
  int64_t rows;
  int d;
  float* chunks;
  int64_t stride;
};

struct BackwardValues {
  float4 dy, xh;
};

/// A team takes a chunk of rows.
template <class Layout, class T>
__global__ void __launch_bounds__(Layout::kMostThreads) backward(const Backward<T> norm) {
  using At = Columns<Layout::kWide>;
  const RowTeam<Layout> team(norm.d);
  const int64_t begin = team.number() * kChunkRows;
  const int rows = chunk_rows(begin, norm.rows);
  if (rows == 0) return;
  const auto width = static_cast<float>(norm.d);
  const RowVector<Layout> w(team, norm.w);
  float* own = norm.chunks + team.number() * norm.stride;
  ColumnSum<Layout> dw(own), dbias(own + norm.d);
  for (int i = 0; i < rows; ++i) {
    const int64_t r = begin + i;
    const T *dy = norm.dy[r], *x = norm.x[r];
    T* dx = norm.dx[r];
    const float scale = norm.r[r], mean = norm.mean[r];
    KeptValues<Layout, BackwardValues> kept;
    KeptValues<Layout, float4> before;
    const auto load = [&](At at) { return BackwardValues{at.load(dy), scale * (at.load(x) - mean)}; };
    const auto load_before = [&](At at) { return at.load_or(norm.accumulate_dx ? dx : nullptr, 0); };
    float sums[2] = {};
    team.for_columns([&](At at) {
      const BackwardValues v = kept.load(at, load);
      if constexpr (kInRegisters<Layout>) before.load(at, load_before);
      const float4 p = w(at) * v.dy;  // 0 beyond the row
      sums[0] += dot(w(at), v.dy);
      sums[1] += dot(p, v.xh);
    });
    team.sum(sums, i);
    const float mean_p = sums[0] / width, mean_p_xh = sums[1] / width;
    team.for_columns([&](At at) {
      const BackwardValues v = kept.again(at, load);
      const float4 gradient = scale * (fma4(-mean_p_xh, v.xh, w(at) * v.dy) - mean_p);
      dw.add(at, v.dy * v.xh, i == 0);
      dbias.add(at, v.dy, i == 0);
      at.store(dx, norm.accumulate_dx ? before.again(at, load_before) + gradient : gradient);
    });
  }
  dw.finish(team);
  dbias.finish(team);
}

}  // namespace

void keel_cuda_layer_norm(CudaQueue& queue, View<const float, 2> x, const float* w, const float* bias, float eps,
                          View<float, 2> y, float* r, float* mean) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  const Forward<float> norm{x, w, bias, y, r, mean, rows, static_cast<int>(d), eps};
  const bool wide = have_wide_rows(x, y) && is_aligned(w, 16) && is_aligned(bias, 16);
  with_row_layout(d, wide, [&](auto layout) {
    using Layout = decltype(layout);
    launch_teams<Layout>(queue, forward<Layout, float>, rows, d, norm);
  });
}

void keel_cuda_layer_norm_backward(CudaQueue& queue, View<const float, 2> dy, View<const float, 2> x, const float* w,
                                   const float* r, const float* mean, View<float, 2> dx, bool accumulate_dx, float* dw,
                                   float* dbias, View<float, 2> partial, RowSums sums) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  ChunkSums chunk_sums(queue, sums, rows, 2 * d, partial);
  if (chunk_sums.takes_rows()) {
    const Backward<float> norm{
        dy, x, w, r, mean, dx, accumulate_dx, rows, static_cast<int>(d), chunk_sums.chunks(), chunk_sums.stride()};
    with_row_layout(d, have_wide_rows(dy, x, dx) && is_aligned(w, 16), [&](auto layout) {
      using Layout = decltype(layout);
      launch_teams<Layout>(queue, backward<Layout, float>, chunk_sums.count(), d, norm);
    });
  }
  chunk_sums.add(0, d, dw);
  chunk_sums.add(d, d, dbias);
  chunk_sums.add_up();
}

}  // namespace keel
