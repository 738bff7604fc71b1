#include "keel/kernels/common/column_sum.cuh"
#include "keel/kernels/common/element_kernel.cuh"
#include "keel/kernels/seam/seam_cuda.cuh"

namespace keel {
namespace {

template <class Branch>
struct Backward {
  SeamSum<Branch> sum;
  const float *g_o, *g_i;
  float factor, inner_eps;
  const float *outer_r, *inner_r, *outer_mean;
  Matrix<const float> y, Ds;
  Matrix<const Branch> Du;
  Matrix<float> dx;
  Matrix<Branch> dF;
  bool wants_skip, wants_branch;  ///< gradients of s and t
  int64_t rows;
  int d;
  float* chunks;
  int64_t stride, scales;  ///< of a chunk's numbers; where those of a and b begin
};

/// What the formulas begin with.
struct Values {
  float4 z;       ///< without an outer norm but with an inner one: y
  float4 direct;  ///< the gradient that reaches y without passing the inner norm
  float4 du;
};

template <OuterNorm kOuter, bool kInner, class Branch>
struct Row {
  const Backward<Branch>& seam;
  const float *x, *y, *Ds;
  const Branch *F, *Du;
  float a, b, r_o, r_i, mean;

  __device__ Row(const Backward<Branch>& seam_, int64_t r)
      : seam(seam_),
        x(seam.sum.x[r]),
        y(seam.y[r]),
        Ds(seam.Ds[r]),
        F(seam.sum.F[r]),
        Du(seam.Du[r]),
        a(*seam.sum.a),
        b(*seam.sum.b),
        r_o(kOuter == OuterNorm::none ? 1 : seam.outer_r[r]),
        r_i(kInner ? seam.inner_r[r] : 1),
        mean(kOuter == OuterNorm::layer ? seam.outer_mean[r] : 0) {}

  template <bool kScales, class At>
  __device__ float4 skip(At at) const {
    return kScales ? a * at.load_or(seam.sum.skip, 1) : splat(a);
  }
  template <bool kScales, class At>
  __device__ float4 branch(At at) const {
    return kScales ? b * at.load_or(seam.sum.branch, 1) : splat(b);
  }
  template <bool kScales, class At>
  __device__ Values load(At at) const {
    Values v{splat(0), at.load_or(Ds, 0), splat(0)};
    const float4 gradient = at.load_or(Du, 0);
    if constexpr (kOuter != OuterNorm::none) {
      v.z = fma4(skip<kScales>(at), at.load(x), branch<kScales>(at) * at.load(F));
    } else if constexpr (kInner) {
      v.z = at.load(y);
    }
    if constexpr (kInner) {
      v.du = seam.factor * gradient;
    } else {
      v.direct = v.direct + gradient;
    }
    return v;
  }
};

/// Numbers of a row that follow from its sums.
struct Means {
  float r_i_A = 0, B = 0, p = 0;
};

/// Gradients of s, t, a and b over a chunk.
template <class Layout>
struct ScaleSums {
  ColumnSum<Layout> d_skip, d_branch;
  double d_a = 0, d_b = 0;
  __device__ ScaleSums(float* skip, float* branch) : d_skip(skip), d_branch(branch) {}

  template <class Row, class At>
  __device__ void add(const Row& row, At at, float4 dz, bool is_first) {
    if (row.x != nullptr) {
      const float4 dz_x = dz * at.load(row.x);
      d_a += dot(at.load_or(row.seam.sum.skip, 1), dz_x);
      if (row.seam.wants_skip) d_skip.add(at, row.a * dz_x, is_first);
    }
    if (row.F != nullptr) {
      const float4 dz_F = dz * at.load(row.F);
      d_b += dot(at.load_or(row.seam.sum.branch, 1), dz_F);
      if (row.seam.wants_branch) d_branch.add(at, row.b * dz_F, is_first);
    }
  }
  template <class Seam>
  __device__ void finish(const RowTeam<Layout>& team, const Seam& seam, float* scales, int64_t turn) {
    if (seam.wants_skip) d_skip.finish(team);
    if (seam.wants_branch) d_branch.finish(team);
    double sums[2] = {d_a, d_b};
    team.sum(sums, turn);
    if (!team.is_first_thread()) return;
    scales[0] = static_cast<float>(sums[0]);
    scales[1] = static_cast<float>(sums[1]);
  }
};

/// A team takes a chunk of rows, each in one sweep over memory. kScales: scale vectors, or gradients of any scale.
template <class Layout, OuterNorm kOuter, bool kInner, bool kScales, class Branch>
__global__ void __launch_bounds__(Layout::kMostThreads, Layout::kTeams > 1 ? 1 : 0) backward(const Backward<Branch> seam) {
  using At = Columns<Layout::kWide>;
  constexpr bool kRms = kOuter == OuterNorm::rms, kLayer = kOuter == OuterNorm::layer;
  const RowTeam<Layout> team(seam.d);
  const int64_t begin = team.number() * kChunkRows;
  const int rows = chunk_rows(begin, seam.rows);
  if (rows == 0) return;
  const auto width = static_cast<float>(seam.d);
  float* own = seam.chunks + team.number() * seam.stride;
  const RowVector<Layout> g_o(team, seam.g_o), g_i(team, seam.g_i);
  ColumnSum<Layout> d_g_o(own), d_g_i(own + seam.d), d_bias(own + 2 * seam.d);
  ScaleSums<Layout> d_scales(own + 3 * seam.d, own + 4 * seam.d);

  for (int i = 0; i < rows; ++i) {
    const int64_t r = begin + i;
    const Row<kOuter, kInner, Branch> row(seam, r);
    const auto load = [&](At at) { return row.template load<kScales>(at); };
    const auto y_of = [&](At at, const Values& v) { return kRms ? row.r_o * v.z * g_o(at) : v.z; };
    KeptValues<Layout, Values> kept;
    float sums[2] = {};
    team.for_columns([&](At at) {
      const Values v = kept.load(at, load);
      if constexpr (kLayer) {
        const float4 p = g_o(at) * v.direct;  // 0 beyond the row
        sums[0] += dot(g_o(at), v.direct);
        sums[1] += dot(p, v.z - row.mean);
      } else {
        const float4 y = y_of(at, v);
        if constexpr (kInner) sums[0] += dot(g_i(at) * v.du, y);
        if constexpr (kRms) sums[1] += dot(y, v.direct);
      }
    });
    if constexpr (kOuter != OuterNorm::none || kInner) team.sum(sums, i);
    Means means;
    if constexpr (kLayer) {
      means.p = sums[0] / width;
      means.B = row.r_o * sums[1] / width;
    } else {
      means.r_i_A = row.r_i * row.r_i * (sums[0] / width);
      means.B = sums[1] / width + seam.inner_eps * row.r_i * means.r_i_A;
    }
    float* dx = seam.dx[r];
    Branch* dF = seam.dF[r];
    team.for_columns([&](At at) {
      const Values v = kept.again(at, load);
      float4 D = v.direct;
      if constexpr (kInner) {
        const float4 y = y_of(at, v);
        D = fma4(row.r_i, fma4(-means.r_i_A, y, g_i(at) * v.du), D);
        d_g_i.add(at, v.du * (row.r_i * y), i == 0);
      }
      if constexpr (kRms) {
        const float4 zh = row.r_o * v.z;
        d_g_o.add(at, D * zh, i == 0);
        D = row.r_o * fma4(-means.B, zh, g_o(at) * D);
      }
      if constexpr (kLayer) {
        const float4 zh = row.r_o * (v.z - row.mean);
        d_g_o.add(at, D * zh, i == 0);
        d_bias.add(at, D, i == 0);
        D = row.r_o * (fma4(-means.B, zh, g_o(at) * D) - means.p);
      }
      if constexpr (kScales) d_scales.add(row, at, D, i == 0);
      at.store(dx, row.template skip<kScales>(at) * D);
      at.store(dF, row.template branch<kScales>(at) * D);
    });
  }
  if constexpr (kRms || kLayer) d_g_o.finish(team);
  if constexpr (kInner) d_g_i.finish(team);
  if constexpr (kLayer) d_bias.finish(team);
  if constexpr (kScales) d_scales.finish(team, seam, own + seam.scales, 0);
}

/// A seam without norms or wanted gradients of scales.
template <class Branch>
struct Split {
  const float *a, *b;
  Matrix<const float> Ds;
  Matrix<const Branch> Du;
  Matrix<float> dx;
  Matrix<Branch> dF;
  template <class At>
  __device__ void operator()(int64_t r, At at) const {
    const float4 dz = at.load_or(Ds[r], 0) + at.load_or(Du[r], 0);
    at.store(dx[r], *a * dz);
    at.store(dF[r], *b * dz);
  }
};

/// Where the sums do not all fit in registers a row is read in loops.
template <class Layout, bool kScales>
using LayoutFor = std::conditional_t<(kScales && Layout::kGroups > 2), RowInLoops<true>, Layout>;

template <class Branch>
Backward<Branch> kernel_seam_of(const SeamBackward& seam, const ChunkSums& sums) {
  return {.sum = {seam.x, seam.F, seam.a.data(), seam.b.data(), seam.skip_scale.data(), seam.branch_scale.data()},
          .g_o = seam.outer_gain.data(),
          .g_i = seam.inner_gain.data(),
          .factor = seam.inner_factor,
          .inner_eps = seam.inner_eps,
          .outer_r = seam.outer_r.data(),
          .inner_r = seam.inner_r.data(),
          .outer_mean = seam.outer_mean.data(),
          .y = seam.y,
          .Ds = seam.Ds,
          .Du = seam.Du,
          .dx = seam.dx,
          .dF = seam.dF,
          .wants_skip = static_cast<bool>(seam.d_skip_scale),
          .wants_branch = static_cast<bool>(seam.d_branch_scale),
          .rows = seam.dx.extent(0),
          .d = static_cast<int>(seam.dx.extent(1)),
          .chunks = sums.chunks(),
          .stride = sums.stride(),
          .scales = seam.partial.extent(1) - 2};
}

template <class Branch>
void take_rows(CudaQueue& queue, const SeamBackward& seam, const ChunkSums& sums, bool scales) {
  const int64_t d = seam.dx.extent(1);
  const Backward<Branch> kernel_seam = kernel_seam_of<Branch>(seam, sums);
  const bool wide = have_wide_rows(seam.x, seam.F, seam.y, seam.Ds, seam.Du, seam.dx, seam.dF) &&
                    are_wide_vectors(seam.skip_scale, seam.branch_scale, seam.outer_gain, seam.inner_gain);
  with_seam_norms(seam, [&](auto outer, auto inner) {
    constexpr OuterNorm kOuter = decltype(outer)::value;
    constexpr bool kInner = decltype(inner)::value;
    with_row_layout(d, wide, [&](auto layout) {
      using Plain = LayoutFor<decltype(layout), false>;
      using Scaled = LayoutFor<decltype(layout), true>;
      if (scales) {
        launch_teams<Scaled>(queue, backward<Scaled, kOuter, kInner, true, Branch>, sums.count(), d, kernel_seam);
      } else if constexpr (kOuter != OuterNorm::none || kInner) {
        launch_teams<Plain>(queue, backward<Plain, kOuter, kInner, false, Branch>, sums.count(), d, kernel_seam);
      }
    });
  });
}

}  // namespace

void keel_cuda_seam_backward(CudaQueue& queue, const SeamBackward& seam) {
  const int64_t rows = seam.dx.extent(0), d = seam.dx.extent(1), columns = seam.partial.extent(1);
  const bool scales = seam.d_a || seam.d_b || seam.skip_scale || seam.branch_scale;
  if (!scales && !seam.outer_gain && !seam.inner_gain) {
    if (seam.sums == RowSums::add_up) return;
    return with_element_type(seam.dF.type(), [&](auto type) {
      using Branch = typename decltype(type)::type;
      for_elements(queue, rows, d, have_wide_rows(seam.Ds, seam.Du, seam.dx, seam.dF),
                   Split<Branch>{seam.a.data(), seam.b.data(), seam.Ds, seam.Du, seam.dx, seam.dF});
    });
  }
  ChunkSums sums(queue, seam.sums, rows, columns, seam.partial);
  if (sums.takes_rows()) {
    with_element_type(seam.dF.type(),
                      [&](auto type) { take_rows<typename decltype(type)::type>(queue, seam, sums, scales); });
  }
  if (seam.outer_gain) sums.add(0, d, seam.d_outer_gain.data());
  if (seam.inner_gain) sums.add(d, d, seam.d_inner_gain.data());
  if (seam.outer_bias) sums.add(2 * d, d, seam.d_outer_bias.data());
  if (scales) {
    sums.add(3 * d, d, seam.d_skip_scale.data());
    sums.add(4 * d, d, seam.d_branch_scale.data());
    sums.add(columns - 2, 1, seam.d_a.data());
    sums.add(columns - 1, 1, seam.d_b.data());
  }
  sums.add_up();
}

}  // namespace keel
