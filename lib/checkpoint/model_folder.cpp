#include "keel/checkpoint/model_folder.h"

#include <filesystem>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/checkpoint/checkpoint.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

ModelFolder of_checkpoint(Checkpoint checkpoint) {
  ModelFolder folder;
  folder.path = checkpoint.path;
  folder.config_path = (fs::path(checkpoint.path) / "config.json").string();
  folder.config_text = std::move(checkpoint.config_text);
  folder.tensors = std::move(checkpoint.model);
  folder.tokenizer_path = std::move(checkpoint.tokenizer_path);
  return folder;
}

ModelFolder of_hugging_face(const fs::path& path) {
  ModelFolder folder;
  folder.path = path.string();
  folder.config_path = (path / "config.json").string();
  folder.config_text = read_regular_file(folder.config_path, kMaxFolderJson);
  folder.tensors = TensorSet::open_folder(folder.path);
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"}) {
    if (folder.tokenizer_path.empty() && is_there(path / name)) folder.tokenizer_path = (path / name).string();
  }
  for (const std::string& ignored : folder.tensors.ignored_files()) {
    folder.warnings.push_back(fmt::format("ignored beside model.safetensors.index.json: {}", ignored));
  }
  return folder;
}

ModelFolder of_run(const std::string& path) {
  NewestCheckpoint newest = newest_checkpoint(path);
  if (!newest.checkpoint) {
    const std::string why = newest.skipped.empty() ? "" : newest.skipped[0].path + ": " + newest.skipped[0].damage;
    throw Error(ErrorKind::format, "no complete checkpoint in this run", path, why);
  }
  ModelFolder folder = of_checkpoint(std::move(*newest.checkpoint));
  for (const CheckpointEntry& entry : newest.skipped) {
    folder.warnings.push_back(fmt::format("skipped {}: {}", entry.path, entry.damage));
  }
  return folder;
}

}  // namespace

ModelFolder open_model_folder(const std::string& path) {
  require_directory(path);
  const fs::path folder(path);
  if (is_there(folder / "trainer.json")) return of_checkpoint(open_checkpoint(path));
  if (is_there(folder / "config.json")) return of_hugging_face(folder);
  if (is_there(folder / "checkpoints")) return of_run(path);
  throw Error(ErrorKind::format, "neither a model folder (config.json and weights), a checkpoint nor a run", path);
}

void add_weight_inputs(Report& report, const ModelFolder& folder) {
  constexpr int64_t kLargestHashed = int64_t{1} << 30;
  for (const SafetensorsFile& file : folder.tensors.files()) {
    const bool hashes = file.bytes() <= kLargestHashed;
    report.add_input({.path = file.path(), .bytes = file.bytes(), .xxh3 = hashes ? xxh3_of_file(file.path()) : ""});
  }
}

}  // namespace keel
