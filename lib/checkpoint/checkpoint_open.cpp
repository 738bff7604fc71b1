#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint_manifest.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/checkpoint/checkpoint.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

void check_hashes(const fs::path& folder, const detail::CheckpointManifest& manifest) {
  for (const FileRecord& file : manifest.files) {
    const fs::path path = folder / file.name;
    const std::string found = xxh3_of_file(path);
    if (found != file.xxh3) {
      throw Error(ErrorKind::format, fmt::format("damaged: XXH3 {}, the manifest says {}", found, file.xxh3),
                  path.string());
    }
  }
}

/// What is listed besides our own files is the tokenizer, its main file first.
std::string tokenizer_of(const fs::path& folder, const detail::CheckpointManifest& manifest) {
  for (const FileRecord& file : manifest.files) {
    if (!is_checkpoint_file_name(file.name)) return (folder / file.name).string();
  }
  return "";
}

std::vector<std::string> optimizer_files(const fs::path& folder, const detail::CheckpointManifest& manifest) {
  std::vector<std::string> paths;
  for (const FileRecord& file : manifest.files) {
    if (file.name.starts_with(detail::kOptimizerStart)) paths.push_back((folder / file.name).string());
  }
  return paths;
}

std::string damage_of(const fs::path& folder) {
  try {
    detail::check_sizes(folder, detail::read_manifest(folder));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

bool is_checkpoint_file_name(std::string_view name) {
  return name == detail::kConfigName || name == detail::kModelName || name == detail::kTrainerName ||
         name == detail::kManifestName || name.starts_with(detail::kOptimizerStart);
}

std::vector<CheckpointEntry> list_checkpoints(const std::string& run) {
  std::vector<CheckpointEntry> found;
  std::error_code code;
  for (fs::directory_iterator entry(detail::checkpoints_folder(run), code), end; !code && entry != end;
       entry.increment(code)) {
    const auto step = detail::checkpoint_step(entry->path().filename().string());
    if (step) found.push_back({entry->path().string(), *step, damage_of(entry->path())});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

Checkpoint open_checkpoint(const std::string& path) {
  const fs::path folder(path);
  require_directory(folder);
  const detail::CheckpointManifest manifest = detail::read_manifest(folder);
  detail::check_sizes(folder, manifest);
  check_hashes(folder, manifest);
  Checkpoint checkpoint;
  checkpoint.path = path;
  checkpoint.step = manifest.step;
  checkpoint.saved = manifest.saved;
  checkpoint.config_text = read_regular_file(folder / detail::kConfigName, kMaxFolderJson);
  checkpoint.trainer = read_json(folder / detail::kTrainerName, ErrorKind::format).root();
  checkpoint.tokenizer_path = tokenizer_of(folder, manifest);
  checkpoint.model = TensorSet::open_file((folder / detail::kModelName).string());
  const auto optimizers = optimizer_files(folder, manifest);
  if (!optimizers.empty()) checkpoint.optimizer = TensorSet::open_files(optimizers);
  return checkpoint;
}

NewestCheckpoint newest_checkpoint(const std::string& run) {
  NewestCheckpoint result;
  std::vector<CheckpointEntry> entries = list_checkpoints(run);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->damage.empty()) {
      try {
        result.checkpoint = open_checkpoint(entry->path);
        return result;
      } catch (const Error& error) {
        entry->damage = error.what();
      }
    }
    result.skipped.push_back(*entry);
  }
  return result;
}

}  // namespace keel
