#pragma once

#include <cstdint>

namespace keel {

struct DecoderOptions {
  int64_t max_tokens = 0;     ///< largest N of a batch
  int64_t max_positions = 0;  ///< every position is below this
  bool training = true;       ///< keep what the backward pass reads
  int64_t cache_pages = 0;    ///< pages of the key-value cache; 0: none
  int64_t page_size = 0;      ///< tokens a page
  int64_t logit_rows = 0;     ///< rows that logits() makes at a time; 0: none are asked for
};

}  // namespace keel
