#include "keel/train/train_samples.h"

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel {

void encode_sample_prompts(const Config& config, const TextCodec& codec, TrainSettings& settings) {
  SampleSettings& sample = settings.validate.sample;
  const int64_t context = settings.model.max_position_embeddings;
  for (size_t i = 0; i < sample.prompts.size(); ++i) {
    const auto bad = [&](const std::string& message) {
      return Error(ErrorKind::config, fmt::format("prompt {} of validate.sample.prompts: {}", i + 1, message),
                   config.where("validate.sample.prompts", fmt::format("/{}", i)));
    };
    std::vector<int32_t> ids;
    try {
      ids = codec.encode_prompt(sample.prompts[i]);
    } catch (const Error& error) {
      throw bad(error.what());
    }
    if (const auto problem = problem_of_prompt(ids, context, settings.model.vocab_size)) throw bad(*problem);
    sample.prompt_ids.push_back(std::move(ids));
  }
  sample.stop_ids = codec.stop_ids();
  sample.vocabulary = codec.vocab_size();
}

std::vector<GenerationRequest> sample_requests(const TrainSettings& settings, int64_t step) {
  const SampleSettings& sample = settings.validate.sample;
  std::vector<GenerationRequest> requests;
  for (const std::vector<int32_t>& prompt : sample.prompt_ids) {
    requests.push_back({.prompt = prompt,
                        .max_tokens = sample.tokens,
                        .stop_ids = sample.stop_ids,
                        .vocabulary = sample.vocabulary,
                        .sampling = sample.sampling,
                        .seed = derive_seed(settings.seed, fmt::format("sample {}", step)),
                        .stream = requests.size()});
  }
  return requests;
}

GeneratorSizes sample_sizes(const TrainSettings& settings) {
  constexpr int64_t kSequences = 8, kBatchTokens = 256;  // little memory beside the training's
  return generator_sizes(sample_requests(settings, 0), settings.model.max_position_embeddings, kSequences,
                         kBatchTokens);
}

}  // namespace keel
