#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "keel/checkpoint/model_folder.h"

namespace keel {

/// The version of transformers whose layout is written.
inline constexpr const char* kTransformersVersion = "4.44.0";

/// The tokenizer's special tokens: ids for configs, texts for tokenizer_config.json. A text may be "".
struct SpecialTokens {
  std::optional<int32_t> bos_id, eos_id;
  std::string bos, eos, unk;
  bool adds_bos = false, adds_eos = false;
};

/// A file beside the weights of a model.
struct Companion {
  std::string name, content;
};

/// The tokenizer and generation files that lie beside the source, as they are.
std::vector<Companion> companions_of(const ModelFolder& source);

/// What transformers also wants to see and the source lacks: generation_config.json, and, where there is a tokenizer,
/// tokenizer_config.json, with which AutoTokenizer gives the tokenizer's own ids. `present` are those of the source.
std::vector<Companion> missing_companions(const std::vector<Companion>& present, const SpecialTokens& special,
                                          int64_t max_positions);

}  // namespace keel
