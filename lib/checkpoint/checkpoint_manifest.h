#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "keel/checkpoint/safetensors.h"

namespace keel::detail {

inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kModelName = "model.safetensors";
inline constexpr const char* kOptimizerName = "optimizer-00000.safetensors";
inline constexpr const char* kOptimizerStart = "optimizer-";
inline constexpr const char* kTrainerName = "trainer.json";
inline constexpr const char* kManifestName = "manifest.json";

struct CheckpointManifest {
  int64_t step = 0;
  std::string saved;
  std::vector<FileRecord> files;

  const FileRecord* find(const std::string& name) const;
};

std::string manifest_text(const CheckpointManifest& manifest);

/// Reads FOLDER/manifest.json and checks that the files a checkpoint must have are listed. Throws Error(io),
/// Error(format).
CheckpointManifest read_manifest(const std::filesystem::path& folder);

/// Throws Error(format) that names the first file that is missing or has another size.
void check_sizes(const std::filesystem::path& folder, const CheckpointManifest& manifest);

/// RUN/checkpoints
std::filesystem::path checkpoints_folder(const std::string& run);
/// step-00000042
std::string checkpoint_name(int64_t step);
/// The step of such a name; nullopt for any other name.
std::optional<int64_t> checkpoint_step(const std::string& name);

}  // namespace keel::detail
