#include "keel/eval/text_loss.h"

#include <algorithm>

#include "keel/base/error.h"
#include "keel/eval/text_windows.h"
#include "keel/inference/inference_model.h"
#include "keel/model/model_config_json.h"

namespace keel {

TextLoss text_loss(Context& ctx, const ModelFolder& folder, const Tokenizer& tokenizer, std::string_view text,
                   const std::string& name, const std::function<bool()>& interrupted) {
  constexpr int64_t kLongestWindow = 4096;
  const ModelConfig config = parse_model_config(folder.config_text, folder.config_path);
  const int64_t positions = config.max_position_embeddings > 0 ? config.max_position_embeddings : kDefaultPositions;
  const TextWindows windows{.window = std::clamp<int64_t>(positions, 2, kLongestWindow), .bos = tokenizer.bos_id()};
  const std::vector<int32_t> tokens = tokenizer.encode(text);
  if (cut_windows(std::ssize(tokens), windows).empty()) {
    throw Error(ErrorKind::format, "the text has no token to predict", name);
  }
  const ScorerSizes sizes{.max_length = std::min<int64_t>(windows.window, std::ssize(tokens) + 1)};
  InferenceModel model(ctx, folder, sizes.decoder_options(), interrupted);
  Scorer scorer(model, sizes);
  const TextScore score = score_text(scorer, tokens, windows);
  return {.nats_per_token = -score.log_likelihood / static_cast<double>(score.tokens), .tokens = score.tokens};
}

}  // namespace keel
