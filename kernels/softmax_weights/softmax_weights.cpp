#include "keel/kernels/softmax_weights/softmax_weights.h"

#include <algorithm>
#include <string>

#include "keel/base/error.h"
#include "keel/kernels/softmax_weights/softmax_weights_cpu.h"

namespace keel {
namespace {

void check(const char* name, bool fits) {
  if (!fits)
    throw Error(ErrorKind::shape, std::string(name) + " has not the extent that goes with z", "softmax_weights");
}

}  // namespace

LargestLogit largest_logit(Isa isa, HostView<const float, 1> z) {
  const int64_t V = z.extent(0);
  check("z", V > 0);
  LargestLogit largest;
  largest.value = KEEL_CALL_ISA(isa, largest_of(z.data(), V, largest.all_finite));
  largest.id = static_cast<int32_t>(KEEL_CALL_ISA(isa, index_of(z.data(), V, largest.value)));
  return largest;
}

void softmax_weights(Isa isa, HostView<const float, 1> z, float largest, double inverse_temperature,
                     HostView<float, 1> w, HostView<float, 1> sums) {
  const int64_t V = z.extent(0), blocks = (V + kWeightsOfASum - 1) / kWeightsOfASum;
  check("w", w.extent(0) == V);
  check("sums", sums.extent(0) == blocks);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = block * kWeightsOfASum, count = std::min(kWeightsOfASum, V - begin);
    sums(block) = KEEL_CALL_ISA(isa, weigh(z.data() + begin, count, largest, inverse_temperature, w.data() + begin));
  }
}

}  // namespace keel
