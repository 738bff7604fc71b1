#include "keel/kernels/seam/seam_cuda.cuh"

#include "keel/kernels/common/element_kernel.cuh"

namespace keel {
namespace {

template <class Branch>
struct Forward {
  SeamSum<Branch> sum;
  const float *g_o, *bias, *g_i;
  float factor, outer_eps, inner_eps;
  Matrix<float> y;
  Matrix<Branch> u;
  float *outer_r, *inner_r, *outer_mean;
  int64_t rows;
  int d;
};

__device__ inline float4 inner_norm(float r_i, float4 y, float4 gain) {
  return r_i * y * gain;
}

/// One pass: z stays in registers while both sums run.
template <class Layout, OuterNorm kOuter, bool kInner, class Branch>
__global__ void __launch_bounds__(Layout::kMostThreads) forward(const Forward<Branch> seam) {
  using At = Columns<Layout::kWide>;
  constexpr bool kRms = kOuter == OuterNorm::rms, kLayer = kOuter == OuterNorm::layer;
  const RowTeam<Layout> team(seam.d);
  const int64_t r = team.number();
  if (r >= seam.rows) return;
  const float* x = seam.sum.x[r];
  const Branch* F = seam.sum.F[r];
  const float a = *seam.sum.a, b = *seam.sum.b;
  const RowVector<Layout> g_o(team, seam.g_o), g_i(team, seam.g_i), bias(team, seam.bias);
  KeptValues<Layout, float4> kept;
  const auto load_z = [&](At at) {
    const float4 s = at.load_or(seam.sum.skip, 1), t = at.load_or(seam.sum.branch, 1);
    return fma4(a * s, at.load(x), b * t * at.load_or(F, 0));
  };
  float sums[2] = {};
  team.for_columns([&](At at) {
    const float4 z = kept.load(at, load_z);
    sums[0] += kLayer ? total(z) : dot(z, z);
    if constexpr (kInner) {
      const float4 gz = kRms ? g_o(at) * z : z;
      sums[1] += dot(gz, gz);
    }
  });
  if constexpr (kOuter != OuterNorm::none || kInner) team.sum(sums, 0);

  float r_o = 1, r_i = 1, mean = 0;
  if constexpr (kLayer) {
    mean = sums[0] / static_cast<float>(seam.d);
    float squares[2] = {};
    team.for_columns([&](At at) {
      const float4 centred = at.keep(kept.again(at, load_z) - mean);
      squares[0] += dot(centred, centred);
    });
    team.sum(squares, 1);
    r_o = inverse_rms(squares[0], seam.d, seam.outer_eps);
  }
  if constexpr (kRms) r_o = inverse_rms(sums[0], seam.d, seam.outer_eps);
  if constexpr (kInner) r_i = inverse_rms(r_o * r_o * sums[1], seam.d, seam.inner_eps);
  if (team.is_first_thread()) {
    if constexpr (kLayer) seam.outer_mean[r] = mean;
    if constexpr (kRms || kLayer) seam.outer_r[r] = r_o;
    if constexpr (kInner) seam.inner_r[r] = r_i;
  }
  r_i *= seam.factor;
  float* y = seam.y[r];
  Branch* u = seam.u[r];
  team.for_columns([&](At at) {
    float4 out = kept.again(at, load_z);
    if constexpr (kLayer) out = fma4(r_o * (out - mean), g_o(at), bias(at));
    if constexpr (kRms) out = r_o * out * g_o(at);
    at.store(y, out);
    if constexpr (kInner) {
      at.store(u, inner_norm(r_i, out, g_i(at)));
    } else {
      if (u != nullptr) at.store(u, out);
    }
  });
}

template <class Branch>
struct InnerAgain {
  Matrix<const float> y;
  const float *gain, *r_i;
  float factor;
  Matrix<Branch> u;
  template <class At>
  __device__ void operator()(int64_t r, At at) const {
    at.store(u[r], inner_norm(r_i[r] * factor, at.load(y[r]), at.load(gain)));
  }
};

template <class Branch>
Forward<Branch> kernel_seam_of(const SeamForward& seam) {
  return {.sum = {seam.x, seam.F, seam.a.data(), seam.b.data(), seam.skip_scale.data(), seam.branch_scale.data()},
          .g_o = seam.outer_gain.data(),
          .bias = seam.outer_bias.data(),
          .g_i = seam.inner_gain.data(),
          .factor = seam.inner_factor,
          .outer_eps = seam.outer_eps,
          .inner_eps = seam.inner_eps,
          .y = seam.y,
          .u = seam.u,
          .outer_r = seam.outer_r.data(),
          .inner_r = seam.inner_r.data(),
          .outer_mean = seam.outer_mean.data(),
          .rows = seam.x.extent(0),
          .d = static_cast<int>(seam.x.extent(1))};
}

}  // namespace

void keel_cuda_seam_forward(CudaQueue& queue, const SeamForward& seam) {
  const int64_t rows = seam.x.extent(0), d = seam.x.extent(1);
  const bool wide =
      have_wide_rows(seam.x, seam.F, seam.y, seam.u) &&
      are_wide_vectors(seam.skip_scale, seam.branch_scale, seam.outer_gain, seam.outer_bias, seam.inner_gain);
  with_element_type(seam.F ? seam.F.type() : seam.u.type(), [&](auto type) {
    using Branch = typename decltype(type)::type;
    with_seam_norms(seam, [&](auto outer, auto inner) {
      with_row_layout(d, wide, [&](auto layout) {
        using Layout = decltype(layout);
        launch_teams<Layout>(queue, forward<Layout, decltype(outer)::value, decltype(inner)::value, Branch>, rows, d,
                             kernel_seam_of<Branch>(seam));
      });
    });
  });
}

void keel_cuda_seam_inner_again(CudaQueue& queue, View<const float, 2> y, const float* inner_gain, float inner_factor,
                                const float* inner_r, AnyView<void, 2> u) {
  const bool wide = have_wide_rows(y, u) && is_aligned(inner_gain, 16);
  with_element_type(u.type(), [&](auto type) {
    using Branch = typename decltype(type)::type;
    for_elements(queue, y.extent(0), y.extent(1), wide, InnerAgain<Branch>{y, inner_gain, inner_r, inner_factor, u});
  });
}

}  // namespace keel
