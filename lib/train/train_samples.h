#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/base/config.h"
#include "keel/base/export.h"
#include "keel/generate/generator.h"
#include "keel/train/settings.h"
#include "keel/train/text_codec.h"

namespace keel {

/// Turns the prompts of validate.sample into tokens. Error(config) for one that is not UTF-8, is empty where the
/// tokenizer has no token to start with, or that the model can't continue (problem_of_prompt): what sampling would only
/// find out after some steps is found here.
KEEL_API void encode_sample_prompts(const Config& config, const TextCodec& codec, TrainSettings& settings);

/// The continuations to make after `step` updates, one a prompt. What a step draws is decided by the run's seed, the
/// step and the prompt's place alone.
KEEL_API std::vector<GenerationRequest> sample_requests(const TrainSettings& settings, int64_t step);

/// Memory with which to make them: the same at every step.
KEEL_API GeneratorSizes sample_sizes(const TrainSettings& settings);

/// What a model made of a prompt.
struct TrainSample {
  std::vector<int32_t> tokens;  ///< a token that ends it included
  FinishReason reason = FinishReason::max_tokens;
};

}  // namespace keel
