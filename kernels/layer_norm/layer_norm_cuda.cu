#include "keel/kernels/layer_norm/layer_norm_cuda.h"

#include "keel/kernels/common/column_sum.cuh"

namespace keel {
namespace {

template <class X, class Y>
struct Forward {
  Matrix<const X> x;
  const float *w, *bias;
  Matrix<Y> y;
  float *r, *mean;
  int64_t rows;
  int d;
  float factor, eps;
};

template <class Layout, class X, class Y>
__global__ void __launch_bounds__(Layout::kMostThreads) forward(const Forward<X, Y> norm) {
  using At = Columns<Layout::kWide>;
  const RowTeam<Layout> team(norm.d);
  const int64_t i = team.number();
  if (i >= norm.rows) return;
  const X* from = norm.x[i];
  Y* to = norm.y[i];
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
  team.for_columns(
      [&](At at) { at.store(to, norm.factor * fma4(r * (kept.again(at, load) - mean), w(at), bias(at))); });
}

template <class Y, class X>
struct Backward {
  Matrix<const Y> dy;
  Matrix<const X> x;
  const float *w, *r, *mean;
  Matrix<X> dx;
  bool accumulate_dx;
  int64_t rows;
  int d;
  float factor;
  float* chunks;
  int64_t stride;
};

struct BackwardValues {
  float4 g, xh;
};

/// A team takes a chunk of rows.
template <class Layout, class Y, class X>
__global__ void __launch_bounds__(Layout::kMostThreads, Layout::kTeams) backward(const Backward<Y, X> norm) {
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
    const Y* dy = norm.dy[r];
    const X* x = norm.x[r];
    X* dx = norm.dx[r];
    const float scale = norm.r[r], mean = norm.mean[r];
    KeptValues<Layout, BackwardValues> kept;
    KeptValues<Layout, float4> before;
    const auto load = [&](At at) { return BackwardValues{norm.factor * at.load(dy), scale * (at.load(x) - mean)}; };
    const auto load_before = [&](At at) { return at.load_or(norm.accumulate_dx ? dx : nullptr, 0); };
    float sums[2] = {};
    team.for_columns([&](At at) {
      const BackwardValues v = kept.load(at, load);
      if constexpr (kInRegisters<Layout>) before.load(at, load_before);
      const float4 p = w(at) * v.g;  // 0 beyond the row
      sums[0] += dot(w(at), v.g);
      sums[1] += dot(p, v.xh);
    });
    team.sum(sums, i);
    const float mean_p = sums[0] / width, mean_p_xh = sums[1] / width;
    team.for_columns([&](At at) {
      const BackwardValues v = kept.again(at, load);
      const float4 gradient = scale * (fma4(-mean_p_xh, v.xh, w(at) * v.g) - mean_p);
      dw.add(at, v.g * v.xh, i == 0);
      dbias.add(at, v.g, i == 0);
      at.store(dx, norm.accumulate_dx ? before.again(at, load_before) + gradient : gradient);
    });
  }
  dw.finish(team);
  dbias.finish(team);
}

}  // namespace

void keel_cuda_layer_norm(CudaQueue& queue, const LayerNormForward& p) {
  const int64_t rows = p.x.extent(0), d = p.x.extent(1);
  const bool wide = have_wide_rows(p.x, p.y) && is_aligned(p.w, 16) && is_aligned(p.bias, 16);
  with_element_types(p.y.type(), p.x.type(), [&](auto y, auto x) {
    using Y = typename decltype(y)::type;
    using X = typename decltype(x)::type;
    const Forward<X, Y> norm{p.x, p.w, p.bias, p.y, p.r, p.mean, rows, static_cast<int>(d), p.factor, p.eps};
    with_row_layout(d, wide, [&](auto layout) {
      using Layout = decltype(layout);
      launch_teams<Layout>(queue, forward<Layout, X, Y>, rows, d, norm);
    });
  });
}

void keel_cuda_layer_norm_backward(CudaQueue& queue, const LayerNormBackward& p) {
  const int64_t rows = p.x.extent(0), d = p.x.extent(1);
  ChunkSums sums(queue, p.sums, rows, 2 * d, p.partial);
  if (sums.takes_rows()) {
    with_element_types(p.dy.type(), p.x.type(), [&](auto y, auto x) {
      using Y = typename decltype(y)::type;
      using X = typename decltype(x)::type;
      const Backward<Y, X> norm{
          p.dy,     p.x,           p.w,          p.r, p.mean, p.dx, p.accumulate_dx, rows, static_cast<int>(d),
          p.factor, sums.chunks(), sums.stride()};
      with_row_layout(d, have_wide_rows(p.dy, p.x, p.dx) && is_aligned(p.w, 16), [&](auto layout) {
        using Layout = decltype(layout);
        launch_teams<Layout>(queue, backward<Layout, Y, X>, sums.count(), d, norm);
      });
    });
  }
  sums.add(0, d, p.dw);
  sums.add(d, d, p.dbias);
  sums.add_up();
}

}  // namespace keel
