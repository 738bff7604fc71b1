#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint_manifest.h"
#include "hashed_file.h"
#include "keel/base/atomic_file.h"
#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/checkpoint/checkpoint.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

std::string trainer_text(const CheckpointContents& contents) {
  if (!contents.trainer.is_object()) throw Error(ErrorKind::internal, "the trainer's state is not an object");
  Json root{{"format_version", kCheckpointFormatVersion}};
  for (const auto& [key, value] : contents.trainer.items()) root[key] = value;
  return json_text(root, 2) + "\n";
}

/// Writes one checkpoint's files into a folder, keeping the records for the manifest.
class FolderWriter {
 public:
  FolderWriter(fs::path folder, std::function<void(int64_t)> progress)
      : folder_(std::move(folder)), progress_(std::move(progress)) {}

  void tensors(const char* name, std::span<const TensorSource> sources) {
    records_.push_back(write_safetensors((folder_ / name).string(), sources, progress_));
  }
  void text(const std::string& name, std::string_view content) { records_.push_back(write(name, content)); }
  void manifest(int64_t step) {
    (void)write(detail::kManifestName, detail::manifest_text({step, utc_time(), records_}));
  }

 private:
  FileRecord write(const std::string& name, std::string_view content) {
    detail::HashedFile file((folder_ / name).string(), progress_);
    file.write(content);
    return file.finish();
  }

  fs::path folder_;
  std::function<void(int64_t)> progress_;
  std::vector<FileRecord> records_;
};

/// Takes the folder out of sight under a temporary name first: an interrupted removal leaves nothing under a final
/// name.
std::string remove_checkpoint(const fs::path& path) {
  const fs::path aside = path.parent_path() / fmt::format(".{}.removed.tmp.{}.0", path.filename().string(), ::getpid());
  std::error_code code;
  fs::rename(path, aside, code);
  if (!code) fs::remove_all(aside, code);
  return code ? code.message() : "";
}

bool is_kept(const CheckpointEntry& entry, const Retention& retention) {
  if (retention.keep_every > 0 && entry.step % retention.keep_every == 0) return true;
  return std::find(retention.keep.begin(), retention.keep.end(), entry.step) != retention.keep.end();
}

/// Damaged checkpoints are evidence: they are neither counted nor removed.
void apply_retention(const std::string& run, const Retention& retention, SavedCheckpoint& saved) {
  if (retention.keep_last <= 0) return;
  std::vector<CheckpointEntry> entries = list_checkpoints(run);
  std::erase_if(entries, [](const CheckpointEntry& entry) { return !entry.damage.empty(); });
  const auto removable = static_cast<int64_t>(entries.size()) - retention.keep_last;
  for (int64_t i = 0; i < removable; ++i) {
    if (is_kept(entries[i], retention) || entries[i].path == saved.path) continue;
    const std::string reason = remove_checkpoint(entries[i].path);
    if (reason.empty()) {
      saved.removed.push_back(entries[i].path);
    } else {
      saved.not_removed.push_back(fmt::format("{}: {}", entries[i].path, reason));
    }
  }
}

}  // namespace

int64_t checkpoint_bytes(const CheckpointContents& contents) {
  constexpr int64_t kManifestBytes = 4096;
  int64_t bytes = safetensors_bytes(contents.model) + static_cast<int64_t>(contents.config_text.size()) +
                  static_cast<int64_t>(trainer_text(contents).size()) + kManifestBytes;
  if (!contents.optimizer.empty()) bytes += safetensors_bytes(contents.optimizer);
  for (const FileContent& file : contents.tokenizer) bytes += static_cast<int64_t>(file.bytes.size());
  return bytes;
}

void require_free_space(const std::string& path, int64_t bytes, const char* what) {
  const int64_t available = free_disk_bytes(path);
  if (available < bytes) {
    throw Error(ErrorKind::io, fmt::format("{} needs {} bytes, {} are free", what, bytes, available), path);
  }
}

SavedCheckpoint save_checkpoint(const std::string& run, const CheckpointContents& contents, const Retention& retention,
                                const std::function<void(int64_t done, int64_t total)>& tick) {
  const fs::path parent = detail::checkpoints_folder(run);
  create_directories(parent);
  (void)remove_stale_temporaries(parent);
  const int64_t total = checkpoint_bytes(contents);
  require_free_space(run, total);
  SavedCheckpoint saved;
  saved.path = (parent / detail::checkpoint_name(contents.step)).string();

  AtomicDirectory folder(saved.path);
  FolderWriter writer(folder.temporary(), [&](int64_t bytes) {
    saved.bytes += bytes;
    if (tick) tick(saved.bytes, std::max(total, saved.bytes));
  });
  writer.text(detail::kConfigName, contents.config_text);
  writer.tensors(detail::kModelName, contents.model);
  if (!contents.optimizer.empty()) writer.tensors(detail::kOptimizerName, contents.optimizer);
  writer.text(detail::kTrainerName, trainer_text(contents));
  for (const FileContent& file : contents.tokenizer) writer.text(file.name, file.bytes);
  writer.manifest(contents.step);
  folder.commit(true);
  apply_retention(run, retention, saved);
  return saved;
}

}  // namespace keel
