#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/files.h"
#include "keel/base/json.h"
#include "keel/checkpoint/model_folder.h"
#include "keel/checkpoint/safetensors.h"

namespace keel {

/// Checkpoints of a run: RUN/checkpoints/step-NNNNNNNN/ (design.md section 6), N = updates done, with
///   config.json                  the model's
///   model.safetensors            fp32 master weights under their Hugging Face names
///   optimizer-00000.safetensors  exp_avg.NAME, exp_avg_sq.NAME
///   trainer.json                 the caller's state, with "format_version"
///   the tokenizer's files         if the data has one, byte for byte
///   manifest.json                written last: {"format_version", "step", "saved", "version",
///                                "files": [{"name", "bytes", "xxh3"}]}
/// A directory under its final name is complete: it is written under a temporary name beside it, every file and the
/// directory are fsynced, then it is renamed. A save that is interrupted at any moment leaves the earlier checkpoints
/// alone.
inline constexpr int kCheckpointFormatVersion = 1;

/// True for the names of a checkpoint's own files (config.json, model.safetensors, optimizer-*, trainer.json,
/// manifest.json), which no file of a tokenizer can have.
KEEL_API bool is_checkpoint_file_name(std::string_view name);

/// What to save. Tensors are read from where they lie; nothing is copied in memory.
struct CheckpointContents {
  int64_t step = 0;
  std::string config_text;  ///< config.json
  std::vector<TensorSource> model;
  std::vector<TensorSource> optimizer;  ///< no file when empty
  Json trainer;                         ///< an object; "format_version" is added
  std::vector<FileContent> tokenizer;   ///< its files, the main one first; none without a tokenizer
};

/// Which checkpoints stay after a save. The newest always does.
struct Retention {
  int64_t keep_last = 0;        ///< the newest that many; 0 keeps all
  int64_t keep_every = 0;       ///< besides, steps that are multiples of it; 0: none
  std::vector<int64_t> keep{};  ///< besides, these steps
};

struct SavedCheckpoint {
  std::string path;
  int64_t bytes = 0;                       ///< of all files
  std::vector<std::string> removed{};      ///< by retention, paths
  std::vector<std::string> not_removed{};  ///< what retention could not remove, with the system's reason
};

/// Bytes on disk that saving these contents takes.
KEEL_API int64_t checkpoint_bytes(const CheckpointContents& contents);

/// Throws Error(io) that names the path, what is needed for `what` and what is available, when `bytes` do not fit where
/// `path` lies.
KEEL_API void require_free_space(const std::string& path, int64_t bytes, const char* what = "a checkpoint");

/// Saves, then applies retention. Stale temporaries of earlier, killed saves are removed first; the run directory is
/// expected to be locked by the caller. A checkpoint of the same step is replaced in one go. A save always runs to its
/// end: `tick`, when given, is called between pieces (1 MiB at most) with bytes done and in all, so that the caller can
/// show progress and notice signals. Throws Error(io) when the disk is full or fails, having removed what it wrote;
/// retention is then not applied.
KEEL_API SavedCheckpoint save_checkpoint(const std::string& run, const CheckpointContents& contents,
                                         const Retention& retention = {},
                                         const std::function<void(int64_t done, int64_t total)>& tick = {});

/// A directory with the name of a checkpoint.
struct CheckpointEntry {
  std::string path;
  int64_t step = 0;
  std::string damage;  ///< "" when its manifest is there and every file has its size, else what is wrong
};

/// By step, ascending. Sizes are checked, contents are not. No such run or no checkpoints: empty.
KEEL_API std::vector<CheckpointEntry> list_checkpoints(const std::string& run);

/// An opened checkpoint whose every file has been read and agrees with the manifest.
struct Checkpoint {
  std::string path;
  int64_t step = 0;
  std::string saved;  ///< when, ISO 8601 UTC
  std::string config_text;
  Json trainer;
  std::string tokenizer_path;  ///< its main file inside the checkpoint; "" when it has none
  TensorSet model;
  std::optional<TensorSet> optimizer;
};

/// Verifies and opens. Throws Error(format) naming the file that is missing, cut or altered, or a format_version that
/// this program does not know.
KEEL_API Checkpoint open_checkpoint(const std::string& path);

struct NewestCheckpoint {
  std::optional<Checkpoint> checkpoint;  ///< the newest that verifies
  std::vector<CheckpointEntry> skipped;  ///< newer ones that do not, with the reason in `damage`
};

/// Looks from the newest backwards. No run, no checkpoints: nothing found and nothing skipped.
KEEL_API NewestCheckpoint newest_checkpoint(const std::string& run);

}  // namespace keel
