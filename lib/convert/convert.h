#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/checkpoint/model_folder.h"
#include "keel/convert/companions.h"
#include "keel/model/model_config.h"

namespace keel {

enum class ModelFormat {
  keel,          ///< a Keel-family folder, whatever the scheme
  hugging_face,  ///< a folder of the family that the model exactly is (hugging_face_family()), else a Keel-family one
                 ///< with the Python code that transformers runs it with (trust_remote_code)
};

struct ConvertOptions {
  ModelFormat format = ModelFormat::keel;
  std::optional<StoredType> dtype;  ///< F32, F16 or BF16; absent: every tensor keeps its own
  int64_t max_shard_bytes = 5'000'000'000;
  SpecialTokens special;  ///< the tokenizer's; its ids go where the source's config.json names none
};

struct ConvertedModel {
  std::string model_type;
  int64_t tensors = 0, parameters = 0;
  std::vector<FileRecord> files;  ///< weights and everything beside them
};

/// Writes the model into an existing empty folder: weights (model.safetensors, or shards of whole tensors and their
/// index), config.json with every key of the source's that it does not know itself, and byte for byte the tokenizer and
/// generation files that lie beside the source (a Hugging Face folder gets those it lacks: missing_companions). A
/// tensor that keeps its dtype keeps its bytes; another dtype rounds to nearest even. Error(format) as
/// parse_model_config and TensorSet::match give it, and for a finite value that F16 cannot hold. `tick(done, total)`
/// counts bytes of weights. Stopped after a signal.
KEEL_API ConvertedModel convert_model(const ModelFolder& source, const std::string& folder,
                                      const ConvertOptions& options,
                                      const std::function<void(int64_t, int64_t)>& tick = {});

/// Opens what convert_model wrote and compares every tensor with the source's, rounded to its dtype: bit for bit.
/// Error(format) naming the first that differs. Returns the number of tensors compared.
KEEL_API int64_t verify_conversion(const ModelFolder& source, const ModelFolder& converted);

/// True if no value can have changed by its dtype: every tensor keeps that of the source's or is F32.
KEEL_API bool keeps_values(const ModelFolder& source, const ModelFolder& converted);

/// The model's tensors in the order of its layout, found in the folder and checked (TensorSet::match).
struct ModelTensors {
  ModelConfig config;
  std::vector<std::string> names;
  std::vector<TensorSet::Place> places;
};
KEEL_API ModelTensors model_tensors(const ModelFolder& folder);

}  // namespace keel
