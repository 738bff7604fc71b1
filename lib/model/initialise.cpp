#include <algorithm>

#include "keel/base/hash.h"
#include "keel/base/rng.h"
#include "keel/base/signals.h"
#include "keel/kernels/common/parallel.h"
#include "keel/model/parameters.h"

namespace keel {
namespace {

constexpr int64_t kPiece = int64_t{1} << 16;  // even, so that pairs of normal values stay together

void initialise(const Parameter& parameter, uint64_t seed, Threads threads, float* values) {
  if (parameter.initial_std == 0) {
    std::fill_n(values, parameter.size, static_cast<float>(parameter.initial_mean));
    return;
  }
  const uint64_t stream = xxh3(parameter.name);
  const int64_t pieces = (parameter.size + kPiece - 1) / kPiece;
  for_parts(threads, pieces, [&](int64_t piece, int) {
    const int64_t first = piece * kPiece;
    const int64_t size = std::min(kPiece, parameter.size - first);
    fill_normal(seed, stream, first, parameter.initial_std, {values + first, static_cast<size_t>(size)});
  });
}

}  // namespace

void initialise_parameters(const ParameterLayout& layout, uint64_t seed, Threads threads, HostView<float, 1> weights) {
  int64_t end = 0;
  for (const Parameter& parameter : layout.parameters) {
    throw_if_stopped();
    std::fill(weights.data() + end, weights.data() + parameter.offset, 0.0F);
    initialise(parameter, seed, threads, weights.data() + parameter.offset);
    end = parameter.offset + parameter.size;
  }
  std::fill(weights.data() + end, weights.data() + layout.size, 0.0F);
}

}  // namespace keel
