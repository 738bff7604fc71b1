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
  const int64_t positions = config.max_position_embeddings > 0 ? config.max_position_embeddings : kLongestWindow;
  const TextWindows windows{.window = std::clamp<int64_t>(positions, 2, kLongestWindow), .bos = tokenizer.bos_id()};
  const std::vector<ScoreRequest> requests = text_requests(tokenizer.encode(text), windows);
  TextLoss loss;
  for (const ScoreRequest& request : requests) loss.tokens += std::ssize(request.continuation);
  if (loss.tokens == 0) throw Error(ErrorKind::format, "the text has no token to predict", name);
  const ScorerSizes sizes{.max_length = windows.window};
  InferenceModel model(ctx, folder, sizes.decoder_options(), interrupted);
  for (const Score& score : Scorer(model, sizes).run(requests)) loss.nats_per_token -= score.log_likelihood;
  loss.nats_per_token /= static_cast<double>(loss.tokens);
  return loss;
}

}  // namespace keel
