#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "keel/base/export.h"
#include "keel/checkpoint/model_folder.h"
#include "keel/kernels/seam/seam.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {

struct TextLoss {
  double nats_per_token = 0;
  int64_t tokens = 0;  ///< predicted
};

/// The mean loss of a model on a text, in windows of the model's positions (kDefaultPositions if it names none, at
/// most 4096) as text_requests cuts them, a BOS before each where the tokenizer has one. Equal weights give equal
/// numbers, bit for bit. Error(format) naming `name` if the text has no token to predict; the errors of InferenceModel
/// and of Scorer::run.
KEEL_API TextLoss text_loss(Context& ctx, const ModelFolder& folder, const Tokenizer& tokenizer, std::string_view text,
                            const std::string& name, const std::function<bool()>& interrupted = {});

}  // namespace keel
