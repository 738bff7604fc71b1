#include "keel/kernels/seam/seam_cpu.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/row_norm.h"

namespace keel::KEEL_ISA {
namespace {

/// First element of row r; null for a null view.
const float* row_of(const View<const float, 2>& view, int64_t r) {
  return view.data() == nullptr ? nullptr : view.data() + r * view.stride(0);
}
float* row_of(const View<float, 2>& view, int64_t r) {
  return view.data() == nullptr ? nullptr : view.data() + r * view.stride(0);
}

// z lies in y between the two sweeps, in first-level cache. Both inverse roots follow from the one sweep over x and F.
template <bool kOuter, bool kInner>
void forward_row(const SeamForward& seam, int64_t r) {
  const int64_t d = seam.x.extent(1);
  const float a = *seam.a.data(), b = *seam.b.data();
  const float *x = row_of(seam.x, r), *F = row_of(seam.F, r);
  const float *g_o = seam.outer_gain.data(), *g_i = seam.inner_gain.data();
  float *y = row_of(seam.y, r), *u = row_of(seam.u, r);

  const TwoSums sums = sum_columns2(d, [&](auto at, Vec& z2, Vec& gz2) {
    const Vec z = a * at.load(x) + b * at.load(F);
    at.store(y, z);
    if constexpr (kOuter) z2 += z * z;
    if constexpr (kInner) {
      const Vec gz = kOuter ? at.load(g_o) * z : z;
      gz2 += gz * gz;
    }
  });
  float r_o = 1, r_i = 1;
  if constexpr (kOuter) seam.outer_r.data()[r] = r_o = inverse_rms(sums.first, d, seam.outer_eps);
  if constexpr (kInner) seam.inner_r.data()[r] = r_i = inverse_rms(r_o * r_o * sums.second, d, seam.inner_eps);
  if constexpr (!kOuter && !kInner) return;
  for_columns(d, [&](auto at) {
    Vec out = at.load(y);
    if constexpr (kOuter) {
      out = r_o * out * at.load(g_o);
      at.store(y, out);
    }
    if constexpr (kInner) at.store(u, r_i * out * at.load(g_i));
  });
}

template <bool kOuter, bool kInner>
void forward(const SeamForward& seam, int threads) {
  const int64_t rows = seam.x.extent(0);
#pragma omp parallel for num_threads(threads) schedule(static) if (seam.x.size() >= kParallelElements)
  for (int64_t r = 0; r < rows; ++r) forward_row<kOuter, kInner>(seam, r);
}

/// Sums over the rows of one chunk.
struct ChunkSums {
  float *d_outer_gain, *d_inner_gain;  ///< [d] each
  double d_a, d_b;
};

/// The names are those of docs/seam.md. kSkip: Ds is there. kBranch: Du is there. kScales: d_a or d_b is wanted.
template <bool kOuter, bool kInner, bool kSkip, bool kBranch, bool kScales>
struct BackwardRow {
  const float *x, *F, *y, *Ds, *Du, *g_o, *g_i;
  float a, b, r_o, r_i;

  template <class At>
  [[gnu::always_inline]] Vec load_z(At at) const {
    return a * at.load(x) + b * at.load(F);
  }
  template <class At>
  [[gnu::always_inline]] Vec load_y(At at, Vec z) const {
    return kOuter ? r_o * z * at.load(g_o) : at.load(y);
  }
  /// The gradient that reaches y without passing the inner norm.
  template <class At>
  [[gnu::always_inline]] Vec load_direct(At at) const {
    Vec D{};
    if constexpr (kSkip) D += at.load(Ds);
    if constexpr (kBranch && !kInner) D += at.load(Du);
    return D;
  }

  [[gnu::always_inline]] void run(const SeamBackward& seam, int64_t r, ChunkSums& total) const {
    const int64_t d = seam.dx.extent(1);
    float *dx = row_of(seam.dx, r), *dF = row_of(seam.dF, r);
    float r_i_A = 0, B = 0;
    if constexpr (kOuter || kInner) {
      const TwoSums sums = sum_columns2(d, [&](auto at, Vec& py, Vec& yD) {
        const Vec y_at = load_y(at, kOuter ? load_z(at) : Vec{});
        if constexpr (kInner) py += at.load(g_i) * at.load(Du) * y_at;
        if constexpr (kOuter) yD += y_at * load_direct(at);
      });
      const float mean_py = sums.first / static_cast<float>(d);
      r_i_A = r_i * r_i * mean_py;
      B = sums.second / static_cast<float>(d) + seam.inner_eps * r_i * r_i_A;
    }
    const TwoSums scales = sum_columns2(d, [&](auto at, Vec& dz_x, Vec& dz_F) {
      const Vec z = kOuter ? load_z(at) : Vec{};
      Vec D = load_direct(at);
      if constexpr (kInner) {
        const Vec y_at = load_y(at, z), du = at.load(Du);
        D += r_i * (at.load(g_i) * du - y_at * r_i_A);
        at.store(total.d_inner_gain, at.load(total.d_inner_gain) + du * (r_i * y_at));
      }
      if constexpr (kOuter) {
        const Vec zh = r_o * z;
        at.store(total.d_outer_gain, at.load(total.d_outer_gain) + D * zh);
        D = r_o * (at.load(g_o) * D - zh * B);
      }
      if constexpr (kScales) {
        dz_x += D * at.load(x);
        dz_F += D * at.load(F);
      }
      at.store(dx, a * D);
      at.store(dF, b * D);
    });
    total.d_a += scales.first;
    total.d_b += scales.second;
  }
};

template <class Row>
void backward_chunk(const SeamBackward& seam, int64_t k) {
  const int64_t rows = seam.dx.extent(0), d = seam.dx.extent(1);
  float* partial = row_of(seam.partial, k);
  ChunkSums total{partial, partial + d, 0, 0};
  for_columns(2 * d, [&](auto at) { at.store(partial, Vec{}); });
  const int64_t end = (k + 1) * kReductionRows < rows ? (k + 1) * kReductionRows : rows;
  for (int64_t r = k * kReductionRows; r < end; ++r) {
    const Row row{row_of(seam.x, r),
                  row_of(seam.F, r),
                  row_of(seam.y, r),
                  row_of(seam.Ds, r),
                  row_of(seam.Du, r),
                  seam.outer_gain.data(),
                  seam.inner_gain.data(),
                  *seam.a.data(),
                  *seam.b.data(),
                  seam.outer_r.data() == nullptr ? 1 : seam.outer_r.data()[r],
                  seam.inner_r.data() == nullptr ? 1 : seam.inner_r.data()[r]};
    row.run(seam, r, total);
  }
  partial[2 * d] = static_cast<float>(total.d_a);
  partial[2 * d + 1] = static_cast<float>(total.d_b);
}

void add_chunks(const SeamBackward& seam, int64_t offset, int64_t begin, int64_t end, const View<float, 1>& total) {
  if (total.data() == nullptr) return;
  add_partial_sums(seam.partial.data() + offset, seam.partial.extent(0), seam.partial.stride(0), begin, end,
                   total.data());
}

template <bool kOuter, bool kInner, bool kSkip, bool kBranch, bool kScales>
void backward(const SeamBackward& seam, int threads) {
  const int64_t d = seam.dx.extent(1), chunks = seam.partial.extent(0);
#pragma omp parallel num_threads(threads) if (seam.dx.size() >= kParallelElements)
  {
#pragma omp for schedule(static)
    for (int64_t k = 0; k < chunks; ++k) backward_chunk<BackwardRow<kOuter, kInner, kSkip, kBranch, kScales>>(seam, k);
#pragma omp for schedule(static)
    for (int64_t c = 0; c < d; c += kPartialBlock) {
      const int64_t end = c + kPartialBlock < d ? c + kPartialBlock : d;
      if constexpr (kOuter) add_chunks(seam, 0, c, end, seam.d_outer_gain);
      if constexpr (kInner) add_chunks(seam, d, c, end, seam.d_inner_gain);
    }
#pragma omp single
    if constexpr (kScales) {
      add_chunks(seam, 2 * d, 0, 1, seam.d_a);
      add_chunks(seam, 2 * d + 1, 0, 1, seam.d_b);
    }
  }
}

template <bool kOuter, bool kInner, bool kSkip, bool kBranch>
void backward(const SeamBackward& seam, int threads) {
  if (seam.d_a || seam.d_b) {
    backward<kOuter, kInner, kSkip, kBranch, true>(seam, threads);
  } else {
    backward<kOuter, kInner, kSkip, kBranch, false>(seam, threads);
  }
}

template <bool kOuter, bool kInner>
void backward(const SeamBackward& seam, int threads) {
  if (seam.Ds && seam.Du) {
    backward<kOuter, kInner, true, true>(seam, threads);
  } else if (seam.Du) {
    backward<kOuter, kInner, false, true>(seam, threads);
  } else if constexpr (!kInner) {
    backward<kOuter, kInner, true, false>(seam, threads);
  }
}

}  // namespace

void seam_forward(const SeamForward& seam, int threads) {
  const bool outer = seam.outer_gain.data() != nullptr, inner = seam.inner_gain.data() != nullptr;
  if (outer && inner) {
    forward<true, true>(seam, threads);
  } else if (outer) {
    forward<true, false>(seam, threads);
  } else if (inner) {
    forward<false, true>(seam, threads);
  } else {
    forward<false, false>(seam, threads);
  }
}

void seam_backward(const SeamBackward& seam, int threads) {
  const bool outer = seam.outer_gain.data() != nullptr, inner = seam.inner_gain.data() != nullptr;
  if (outer && inner) {
    backward<true, true>(seam, threads);
  } else if (outer) {
    backward<true, false>(seam, threads);
  } else if (inner) {
    backward<false, true>(seam, threads);
  } else {
    backward<false, false>(seam, threads);
  }
}

}  // namespace keel::KEEL_ISA
