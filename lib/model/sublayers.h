#pragma once

#include <cstdint>
#include <vector>

#include "keel/model/model_config.h"

namespace keel {

/// One residual sublayer as the decoder runs it. Seams follow from the list: between neighbours, before the first,
/// after the last; a sublayer that is taken out of the list is taken out of the model.
struct Sublayer {
  int64_t index = 0;  ///< l, its place in the model and in ParameterLayout::sublayers
  BranchKind branch = BranchKind::attention;
  Wiring wiring;
};

inline std::vector<Sublayer> all_sublayers(const ModelConfig& config) {
  const std::vector<Wiring> wiring = wiring_table(config);
  std::vector<Sublayer> list;
  for (int64_t l = 0; l < config.sublayers(); ++l) {
    list.push_back({l, branch_kind(l), wiring[l]});
  }
  return list;
}

}  // namespace keel
