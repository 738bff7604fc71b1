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
const float* row_of(const AnyView<const void, 2>& view, int64_t r) {
  return row_of(view.as<float>(), r);
}
float* row_of(const AnyView<void, 2>& view, int64_t r) {
  return row_of(view.as<float>(), r);
}

enum class Outer { none, rms, layer };

/// Scales of a column: 1 for a null vector.
template <class At>
[[gnu::always_inline]] inline Vec load_or_one(At at, const float* vector) {
  return vector == nullptr ? Vec{} + 1.0F : at.load(vector);
}

/// The operands of z = a s x + b t F. kVectors: s or t is there.
template <bool kVectors>
struct Sum {
  const float *x, *F, *skip, *branch;
  float a, b;

  template <class At>
  [[gnu::always_inline]] Vec load_skip(At at) const {
    return kVectors ? a * load_or_one(at, skip) : Vec{} + a;
  }
  template <class At>
  [[gnu::always_inline]] Vec load_branch(At at) const {
    return kVectors ? b * load_or_one(at, branch) : Vec{} + b;
  }
  template <class At>
  [[gnu::always_inline]] Vec load_z(At at) const {
    return load_skip(at) * at.load(x) + load_branch(at) * at.load(F);
  }
};

template <bool kVectors, class Seam>
[[gnu::always_inline]] inline Sum<kVectors> sum_of(const Seam& seam, int64_t r) {
  return {row_of(seam.x, r),        row_of(seam.F, r), seam.skip_scale.data(),
          seam.branch_scale.data(), *seam.a.data(),    *seam.b.data()};
}

[[gnu::always_inline]] inline Vec inner_norm(float r_i, Vec y, Vec gain) {
  return r_i * y * gain;
}

// z lies in y between the two sweeps, in first-level cache. Both inverse roots of RMS norms follow from the one sweep
// over x and F.
template <Outer kOuter, bool kInner, bool kVectors>
void forward_row(const SeamForward& seam, int64_t r) {
  constexpr bool kRms = kOuter == Outer::rms;
  const int64_t d = seam.x.extent(1);
  const Sum<kVectors> sum = sum_of<kVectors>(seam, r);
  const float *g_o = seam.outer_gain.data(), *g_i = seam.inner_gain.data();
  float *y = row_of(seam.y, r), *u = row_of(seam.u, r);

  const TwoSums sums = sum_columns2(d, [&](auto at, Vec& first, Vec& gz2) {
    const Vec z = sum.load_z(at);
    at.store(y, z);
    if constexpr (kRms) first += z * z;
    if constexpr (kOuter == Outer::layer) first += z;
    if constexpr (kInner) {
      const Vec gz = kRms ? at.load(g_o) * z : z;
      gz2 += gz * gz;
    }
  });
  if constexpr (kOuter == Outer::layer) {
    const float mean = sums.first / static_cast<float>(d);
    seam.outer_mean.data()[r] = mean;
    seam.outer_r.data()[r] = layer_norm_row(y, mean, g_o, seam.outer_bias.data(), seam.outer_eps, d, y);
    return;
  }
  float r_o = 1, r_i = 1;
  if constexpr (kRms) seam.outer_r.data()[r] = r_o = inverse_rms(sums.first, d, seam.outer_eps);
  if constexpr (kInner) {
    seam.inner_r.data()[r] = r_i = inverse_rms(r_o * r_o * sums.second, d, seam.inner_eps);
    r_i *= seam.inner_factor;
  }
  if constexpr (!kRms && !kInner) return;
  for_columns(d, [&](auto at) {
    Vec out = at.load(y);
    if constexpr (kRms) {
      out = r_o * out * at.load(g_o);
      at.store(y, out);
    }
    if constexpr (kInner) at.store(u, inner_norm(r_i, out, at.load(g_i)));
  });
}

template <Outer kOuter, bool kInner, bool kVectors>
void forward(const SeamForward& seam, Threads threads) {
  const int64_t rows = seam.x.extent(0);
  for_ranges(threads, rows, seam.x.size(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) forward_row<kOuter, kInner, kVectors>(seam, r);
  });
}

template <Outer kOuter, bool kInner>
void forward(const SeamForward& seam, Threads threads) {
  if (seam.skip_scale.data() != nullptr || seam.branch_scale.data() != nullptr) {
    forward<kOuter, kInner, true>(seam, threads);
  } else {
    forward<kOuter, kInner, false>(seam, threads);
  }
}

/// Sums over the rows of one chunk.
struct ChunkSums {
  float *d_outer_gain, *d_inner_gain, *d_outer_bias, *d_skip, *d_branch;  ///< [d] each
  double d_a, d_b;
};

/// The names are those of docs/seam.md. kSkip: Ds is there. kBranch: Du is there. kScales: scale vectors, or gradients
/// of any scale.
template <Outer kOuter, bool kInner, bool kSkip, bool kBranch, bool kScales>
struct BackwardRow {
  static constexpr bool kRms = kOuter == Outer::rms, kLayer = kOuter == Outer::layer;
  Sum<kScales> sum;
  const float *y, *Ds, *Du, *g_o, *g_i;
  float r_o, r_i, mean, c;

  template <class At>
  [[gnu::always_inline]] Vec load_z(At at) const {
    return kOuter == Outer::none ? Vec{} : sum.load_z(at);
  }
  template <class At>
  [[gnu::always_inline]] Vec load_y(At at, Vec z) const {
    return kRms ? r_o * z * at.load(g_o) : at.load(y);
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
    const auto width = static_cast<float>(d);
    float *dx = row_of(seam.dx, r), *dF = row_of(seam.dF, r);
    float r_i_A = 0, B = 0, mean_p = 0;
    if constexpr (kLayer) {
      const TwoSums sums = sum_columns2(d, [&](auto at, Vec& p_sum, Vec& pz) {
        const Vec p = at.load(g_o) * load_direct(at);
        p_sum += p;
        pz += p * (load_z(at) - mean);  // p is 0 beyond the row
      });
      mean_p = sums.first / width;
      B = r_o * sums.second / width;
    } else if constexpr (kRms || kInner) {
      const TwoSums sums = sum_columns2(d, [&](auto at, Vec& py, Vec& yD) {
        const Vec y_at = load_y(at, load_z(at));
        if constexpr (kInner) py += at.load(g_i) * at.load(Du) * y_at;
        if constexpr (kRms) yD += y_at * load_direct(at);
      });
      const float mean_py = c * sums.first / width;
      r_i_A = r_i * r_i * mean_py;
      B = sums.second / width + seam.inner_eps * r_i * r_i_A;
    }
    const TwoSums scales = sum_columns2(d, [&](auto at, Vec& dz_x, Vec& dz_F) {
      const Vec z = load_z(at);
      Vec D = load_direct(at);
      if constexpr (kInner) {
        const Vec y_at = load_y(at, z), du = c * at.load(Du);
        D += r_i * (at.load(g_i) * du - y_at * r_i_A);
        at.store(total.d_inner_gain, at.load(total.d_inner_gain) + du * (r_i * y_at));
      }
      if constexpr (kRms) {
        const Vec zh = r_o * z;
        at.store(total.d_outer_gain, at.load(total.d_outer_gain) + D * zh);
        D = r_o * (at.load(g_o) * D - zh * B);
      }
      if constexpr (kLayer) {
        const Vec zh = r_o * (z - mean);
        at.store(total.d_outer_gain, at.load(total.d_outer_gain) + D * zh);
        at.store(total.d_outer_bias, at.load(total.d_outer_bias) + D);
        D = r_o * (at.load(g_o) * D - mean_p - zh * B);
      }
      if constexpr (kScales) add_scales(seam, at, D, dz_x, dz_F, total);
      at.store(dx, sum.load_skip(at) * D);
      at.store(dF, sum.load_branch(at) * D);
    });
    total.d_a += scales.first;
    total.d_b += scales.second;
  }

  template <class At>
  [[gnu::always_inline]] void add_scales(const SeamBackward& seam, At at, Vec dz, Vec& dz_x, Vec& dz_F,
                                         ChunkSums& total) const {
    if (sum.x != nullptr) {
      const Vec dz_x_at = dz * at.load(sum.x);
      dz_x += load_or_one(at, sum.skip) * dz_x_at;
      if (seam.d_skip_scale.data() != nullptr) {
        at.store(total.d_skip, at.load(total.d_skip) + sum.a * dz_x_at);
      }
    }
    if (sum.F != nullptr) {
      const Vec dz_F_at = dz * at.load(sum.F);
      dz_F += load_or_one(at, sum.branch) * dz_F_at;
      if (seam.d_branch_scale.data() != nullptr) {
        at.store(total.d_branch, at.load(total.d_branch) + sum.b * dz_F_at);
      }
    }
  }
};

/// Whether the scratch matrix has room for the sums of vectors.
bool has_vectors(const SeamBackward& seam) {
  return seam.partial.extent(1) == seam_partial_columns(seam.dx.extent(1), true);
}

template <class Row, bool kVectors>
void backward_chunk(const SeamBackward& seam, int64_t k) {
  const int64_t rows = seam.dx.extent(0), d = seam.dx.extent(1);
  float* partial = row_of(seam.partial, k);
  const bool vectors = has_vectors(seam);
  ChunkSums total{partial, partial + d, nullptr, nullptr, nullptr, 0, 0};
  if (vectors) {
    total.d_outer_bias = partial + 2 * d;
    total.d_skip = partial + 3 * d;
    total.d_branch = partial + 4 * d;
  }
  for_columns((vectors ? 5 : 2) * d, [&](auto at) { at.store(partial, Vec{}); });
  const int64_t end = (k + 1) * kReductionRows < rows ? (k + 1) * kReductionRows : rows;
  for (int64_t r = k * kReductionRows; r < end; ++r) {
    const Row row{sum_of<kVectors>(seam, r),
                  row_of(seam.y, r),
                  row_of(seam.Ds, r),
                  row_of(seam.Du, r),
                  seam.outer_gain.data(),
                  seam.inner_gain.data(),
                  seam.outer_r.data() == nullptr ? 1 : seam.outer_r.data()[r],
                  seam.inner_r.data() == nullptr ? 1 : seam.inner_r.data()[r],
                  seam.outer_mean.data() == nullptr ? 0 : seam.outer_mean.data()[r],
                  seam.inner_factor};
    row.run(seam, r, total);
  }
  const int64_t last = seam_partial_columns(d, vectors) - 2;
  partial[last] = static_cast<float>(total.d_a);
  partial[last + 1] = static_cast<float>(total.d_b);
}

void add_chunks(const SeamBackward& seam, int64_t offset, int64_t begin, int64_t end, const View<float, 1>& total) {
  if (total.data() == nullptr) return;
  add_partial_sums(seam.partial.data() + offset, seam.partial.extent(0), seam.partial.stride(0), begin, end,
                   total.data());
}

template <Outer kOuter, bool kInner, bool kSkip, bool kBranch, bool kScales>
void backward(const SeamBackward& seam, Threads threads) {
  const int64_t d = seam.dx.extent(1), chunks = seam.partial.extent(0);
  using Row = BackwardRow<kOuter, kInner, kSkip, kBranch, kScales>;
  if (seam.sums != RowSums::add_up) {
    for_ranges(threads, chunks, seam.dx.size(), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) backward_chunk<Row, kScales>(seam, k);
    });
  }
  if (seam.sums == RowSums::of_chunks) return;
  for_column_blocks(threads, chunks, d, [&](int64_t c, int64_t end) {
    if constexpr (kOuter != Outer::none) add_chunks(seam, 0, c, end, seam.d_outer_gain);
    if constexpr (kInner) add_chunks(seam, d, c, end, seam.d_inner_gain);
    if constexpr (kOuter == Outer::layer) add_chunks(seam, 2 * d, c, end, seam.d_outer_bias);
    if constexpr (kScales) {
      add_chunks(seam, 3 * d, c, end, seam.d_skip_scale);
      add_chunks(seam, 4 * d, c, end, seam.d_branch_scale);
    }
  });
  if constexpr (kScales) {
    const int64_t last = seam_partial_columns(d, has_vectors(seam)) - 2;
    add_chunks(seam, last, 0, 1, seam.d_a);
    add_chunks(seam, last + 1, 0, 1, seam.d_b);
  }
}

template <Outer kOuter, bool kInner, bool kSkip, bool kBranch>
void backward(const SeamBackward& seam, Threads threads) {
  if (seam.d_a || seam.d_b || seam.skip_scale || seam.branch_scale) {
    backward<kOuter, kInner, kSkip, kBranch, true>(seam, threads);
  } else {
    backward<kOuter, kInner, kSkip, kBranch, false>(seam, threads);
  }
}

template <Outer kOuter, bool kInner>
void backward(const SeamBackward& seam, Threads threads) {
  if (seam.Ds && seam.Du) {
    backward<kOuter, kInner, true, true>(seam, threads);
  } else if (seam.Du) {
    backward<kOuter, kInner, false, true>(seam, threads);
  } else if constexpr (!kInner) {
    backward<kOuter, kInner, true, false>(seam, threads);
  }
}

}  // namespace

void seam_forward(const SeamForward& seam, Threads threads) {
  const bool outer = seam.outer_gain.data() != nullptr, inner = seam.inner_gain.data() != nullptr;
  if (seam.outer_bias.data() != nullptr) {
    forward<Outer::layer, false>(seam, threads);
  } else if (outer && inner) {
    forward<Outer::rms, true>(seam, threads);
  } else if (outer) {
    forward<Outer::rms, false>(seam, threads);
  } else if (inner) {
    forward<Outer::none, true>(seam, threads);
  } else {
    forward<Outer::none, false>(seam, threads);
  }
}

void seam_inner_again(View<const float, 2> y, const float* inner_gain, float inner_factor, const float* inner_r,
                      View<float, 2> u, Threads threads) {
  const int64_t rows = y.extent(0), d = y.extent(1);
  for_ranges(threads, rows, rows * d, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* from = row_of(y, r);
      float* to = row_of(u, r);
      const float scale = inner_r[r] * inner_factor;
      for_columns(d, [&](auto at) { at.store(to, inner_norm(scale, at.load(from), at.load(inner_gain))); });
    }
  });
}

void seam_backward(const SeamBackward& seam, Threads threads) {
  const bool outer = seam.outer_gain.data() != nullptr, inner = seam.inner_gain.data() != nullptr;
  if (seam.outer_bias.data() != nullptr) {
    backward<Outer::layer, false>(seam, threads);
  } else if (outer && inner) {
    backward<Outer::rms, true>(seam, threads);
  } else if (outer) {
    backward<Outer::rms, false>(seam, threads);
  } else if (inner) {
    backward<Outer::none, true>(seam, threads);
  } else {
    backward<Outer::none, false>(seam, threads);
  }
}

}  // namespace keel::KEEL_ISA
