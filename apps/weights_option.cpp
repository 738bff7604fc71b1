#include "weights_option.h"

#include "keel/base/error.h"
#include "keel/inference/packed_weights.h"

namespace keel {

Option weights_option() {
  return {
      .name = "--weights",
      .type = OptionType::choice,
      .initial = "fp32",
      .choices = {"fp32", "bf16", "q8_0"},
      .group = "Execution",
      .help =
          "Type of the model's matrices in memory: bf16 takes half the space, q8_0 (8 bits and a scale for 32) "
          "about a quarter; single tokens come faster, from rounded weights. On a GPU bf16 is also what is computed "
          "with, at its full speed, between fp32 residual streams and logits.",
      .brief = false};
}

WeightType weights_of(const Options& options) {
  const std::string name = options.text("--weights");
  if (const auto type = weight_type(name)) return *type;
  throw Error(ErrorKind::internal, "no such type of weights: " + name);
}

}  // namespace keel
