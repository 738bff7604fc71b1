#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/report.h"
#include "keel/checkpoint/safetensors.h"

namespace keel {

/// The largest JSON file beside weights that is read: the index of a million tensors fits several times.
inline constexpr int64_t kMaxFolderJson = int64_t{64} << 20;

/// A tensor that the model wants: filled exactly once, fp32 (F32, F16 and BF16 files are widened exactly).
struct TensorTarget {
  std::string name;
  std::vector<int64_t> shape;
  std::span<float> values;
};

/// The tensors of one or several safetensors files under one set of names.
/// A sharded set (model.safetensors.index.json) is checked both ways: every name of the index lies in the file it names
/// and only there, every tensor of those files is in the index, file names have no folder part.
class KEEL_API TensorSet {
 public:
  static TensorSet open_file(const std::string& path);
  /// Several files with no tensor in common.
  static TensorSet open_files(const std::vector<std::string>& paths);
  /// FOLDER/model.safetensors.index.json and its shards if it exists, else FOLDER/model.safetensors.
  static TensorSet open_folder(const std::string& folder);

  struct Place {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
  };
  /// Where that tensor is, if it is.
  std::optional<Place> find(std::string_view name) const;
  std::vector<std::string> names() const;
  std::span<const SafetensorsFile> files() const { return files_; }
  /// Files beside the index that were ignored (a model.safetensors beside an index).
  const std::vector<std::string>& ignored_files() const { return ignored_; }

  /// The stored tensor of every target, in their order, once everything is checked: tensors missing or extra throw
  /// Error(format) with the first few names and the count; a shape that differs throws Error(shape) with the tensor,
  /// what was expected and what found; a dtype other than F32, F16 and BF16 Error(format). Legacy buffers
  /// (rotary_emb.inv_freq) are ignored. `tied_head`, "lm_head.weight" of a model with tied embeddings, "" otherwise:
  /// that tensor is no target; a stored one must equal the embedding's bit for bit, and stands in for the embedding
  /// when only it is stored.
  std::vector<Place> match(std::span<const TensorTarget> targets, const std::string& tied_head = "",
                           const std::string& embedding = "model.embed_tokens.weight") const;
  /// Fills every target; none is touched before match() has found them all.
  void read(std::span<const TensorTarget> targets, const std::string& tied_head = "",
            const std::string& embedding = "model.embed_tokens.weight") const;

 private:
  void add(const SafetensorsFile& file);
  // Name of the stored tensor that fills the embedding.
  std::string stand_in(const std::string& tied_head, const std::string& embedding) const;

  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::pair<size_t, const StoredTensor*>, std::less<>> places_;
  std::vector<std::string> ignored_;
};

/// A folder in the Hugging Face layout: config.json and weights.
struct ModelFolder {
  std::string path;
  std::string config_path;
  std::string config_text;  ///< config.json as it is
  TensorSet tensors;
  std::string tokenizer_path;  ///< tokenizer.json, tokenizer.model or vocab.json, a checkpoint's own one; "": none
  std::vector<std::string> warnings;  ///< files that were ignored, newer checkpoints that are damaged
};

/// Opens a model folder, or the newest complete checkpoint of a run directory. What is neither throws Error(format), a
/// path that does not exist Error(io). A checkpoint's manifest is verified first.
KEEL_API ModelFolder open_model_folder(const std::string& path);

/// The folder's weights as a report's inputs, with their XXH3 up to 1 GiB a file: hashing more takes longer than many a
/// command. Error(io).
KEEL_API void add_weight_inputs(Report& report, const ModelFolder& folder);

}  // namespace keel
