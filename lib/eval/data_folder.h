#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/eval/task.h"

namespace keel {

/// A file that rows came from.
struct RowFile {
  std::string path;
  int64_t bytes = 0, rows = 0;
  std::string sha256;
};

/// The rows of one split, in file order.
struct SplitRows {
  std::string split;  ///< what was read: another one than asked for where that is missing (read_or_stand_in)
  std::vector<Json> rows;
  std::vector<RowFile> files;
};

/// A folder with the files of benchmarks, as their authors or the hub distribute them: JSON lines or a JSON array of
/// rows, plain, gzip or zstd. Which file a split is, is decided by
///   its first row, which has the fields of one of the task's layouts;
///   its path below the folder (the folder's own name included), split at everything but letters and digits: it has all
///   of the task's path_words, and the last word that names a split names this one ("train"; "validation", "valid",
///   "val", "dev"; "test"; other splits by their own name).
/// Several shards ("train-00001-of-00004.jsonl") are one file.
class KEEL_API DataFolder {
 public:
  /// Lists the folder; files are opened when they are asked for. Error(io).
  explicit DataFolder(const std::string& path);
  ~DataFolder();

  /// The rows of a split, in the form that the task's templates want. Error(io) if no file is it, saying what was
  /// looked for and where it can be had; Error(usage) if several are; Error(format) naming the row that is damaged, or
  /// a file of that split whose first row (at most 64 MiB) cannot be read, where no other is it.
  SplitRows read(const Task& task, const std::string& split);
  /// The same, or if there is no file for the split, the first of `others` that there is one for. A damaged file that
  /// bears the task's name is an error, not a missing one.
  SplitRows read_or_stand_in(const Task& task, const std::string& split, const std::vector<std::string>& others);

 private:
  struct File;
  struct State;
  std::vector<const File*> find(const Task& task, const std::string& split);
  Error nothing_found(const Task& task, const std::string& split) const;
  std::unique_ptr<State> state_;
};

}  // namespace keel
