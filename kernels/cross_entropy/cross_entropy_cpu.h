#pragma once

#include <cstdint>

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

/// The part of cross_entropy between its matrix products, on the logits of some rows.
struct CrossEntropyRows {
  float* logits;   ///< [rows, V], replaced by their gradient if `gradient`
  int64_t stride;  ///< elements from row to row of the logits
  int64_t rows, V;
  const int32_t* targets;  ///< [rows]
  const float* weights;    ///< [rows]
  float* nll;              ///< [rows] or null
  int32_t* argmax;         ///< [rows] or null
  double* loss_sum;        ///< added to in row order
  bool gradient;
  Threads threads;
};

KEEL_DECLARE_ISA(void cross_entropy_rows(const CrossEntropyRows&))

}  // namespace keel
