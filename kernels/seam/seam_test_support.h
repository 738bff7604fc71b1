#pragma once

// What the tests of the seam share: its forms, cases and their inputs.

#include <algorithm>
#include <string>
#include <vector>

#include "keel/base/view.h"
#include "keel/kernels/seam/seam_ref.h"
#include "support/numeric.h"

namespace keel::seam_testing {

using testing::Random;
using testing::widen;

struct Form {
  bool outer, inner;
  bool layer = false;                 // the outer norm is LayerNorm
  bool skip = false, branch = false;  // scale vectors
  double factor = 1;                  // of the inner norm
};
inline constexpr Form kForms[] = {{true, true},
                                  {true, false},
                                  {false, true},
                                  {false, false},
                                  {.outer = true, .inner = false, .layer = true},
                                  {.outer = true, .inner = false, .layer = true, .skip = true},
                                  {.outer = true, .inner = true, .skip = true, .branch = true, .factor = 0.7},
                                  {.outer = true, .inner = false, .branch = true},
                                  {.outer = false, .inner = true, .branch = true},
                                  {.outer = false, .inner = true, .factor = 0.3},
                                  {.outer = false, .inner = false, .skip = true, .branch = true}};

struct Case {
  int64_t rows, d;
  double a, b;
  int64_t pad = 0, misalign = 0;
  double mean = 0, eps = 1e-5;
  int64_t skew = 1;  ///< by how much the matrices differ in stride and start
};
/// Rows of which a device can take four columns at a time.
inline Case in_fours(int64_t rows, int64_t d) {
  return {.rows = rows, .d = d, .a = 64, .b = 0.5, .skew = 0};
}
inline const Case kCases[] = {{1, 1, 1, 1},
                              {3, 4, 2, 0.5, 1, 1},
                              {2, 15, 1, 1},
                              {5, 16, 8, 1, 3},
                              {4, 17, -1, 2, 0, 1},
                              {63, 8, 128, 1},
                              {64, 65, 128, 1, 2, 3},
                              {65, 64, 1024, 1},
                              {130, 257, 64, 1, 5, 7},
                              {3, 200, 1, 1, 0, 0, 1000},
                              {2, 8192, 512, 1, 0, 0, 3},
                              {6, 33, 3, 1, 0, 0, 0, 0.5},
                              in_fours(3, 8),
                              in_fours(17, 132),
                              in_fours(2, 384),
                              in_fours(3, 520),
                              in_fours(2, 1028),
                              in_fours(1, 2056),
                              in_fours(1, 4100),
                              in_fours(1, 8188),
                              in_fours(1, 8196)};

inline std::string name_of(const Case& c, const Form& form) {
  return std::to_string(c.rows) + " x " + std::to_string(c.d) + ", a " + std::to_string(c.a) +
         (form.layer   ? ", LayerNorm"
          : form.outer ? ", outer"
                       : "") +
         (form.inner ? ", inner" : "") + (form.skip ? ", skip vector" : "") + (form.branch ? ", branch vector" : "") +
         (form.factor != 1 ? ", factor" : "");
}

struct Problem {
  Problem(const Case& c, const Form& form_) : rows(c.rows), d(c.d), form(form_), eps(static_cast<float>(c.eps)) {
    Random random(static_cast<uint64_t>(104729 * c.rows + c.d));
    x = random.normals(rows * d, c.mean);
    F = random.normals(rows * d, 0, 0.5);
    if (rows > 1) {  // a row of zeros
      std::fill_n(x.begin() + d, d, 0.0F);
      std::fill_n(F.begin() + d, d, 0.0F);
    }
    a = {static_cast<float>(c.a)};
    b = {static_cast<float>(c.b)};
    if (form.outer) outer_gain = random.normals(d, 1, 0.3);
    if (form.inner) inner_gain = random.normals(d, 1, 0.3);
    if (form.layer) outer_bias = random.normals(d, 0, 0.5);
    if (form.skip) skip_scale = random.normals(d, 1, 0.4);
    if (form.branch) branch_scale = random.normals(d, 0.5, 0.4);
    Ds = random.normals(rows * d);
    Du = random.normals(rows * d);
  }
  template <class S>
  reference::Seam<S> as() const {
    return {.rows = rows,
            .d = d,
            .x = widen<S>(x),
            .F = widen<S>(F),
            .a = S(a[0]),
            .b = S(b[0]),
            .outer_gain = widen<S>(outer_gain),
            .inner_gain = widen<S>(inner_gain),
            .outer_eps = eps,
            .inner_eps = eps,
            .outer_bias = widen<S>(outer_bias),
            .skip_scale = widen<S>(skip_scale),
            .branch_scale = widen<S>(branch_scale),
            .inner_factor = static_cast<float>(form.factor)};
  }
  int64_t rows, d;
  Form form;
  float eps;
  std::vector<float> x, F, a, b, outer_gain, inner_gain, outer_bias, skip_scale, branch_scale, Ds, Du;
};

inline View<float, 1> flat(std::vector<float>& v) {
  return {v.empty() ? nullptr : v.data(), {static_cast<int64_t>(v.size())}};
}

}  // namespace keel::seam_testing
