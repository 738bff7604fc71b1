#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/files.h"

namespace keel {

/// A file that appears under its name only when complete. Bytes go to ".<name>.tmp.<pid>.<n>" in the same folder;
/// commit() makes them durable and renames. Without commit() (an exception, a signal, a crash, a full disk) nothing is
/// left under the name, and a file that was there before stays as it was. The temporary is removed by the destructor,
/// after a crash by remove_stale_temporaries(). A symbolic link is followed; a pipe or device ("/dev/stdout",
/// "/dev/null") is written directly.
class KEEL_API AtomicFile {
 public:
  /// Error(io) if the folder is missing or not writable, or if the name belongs to a folder.
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept = default;
  AtomicFile& operator=(AtomicFile&& other) = delete;
  ~AtomicFile();

  /// Appends; buffered. Error(io) when the system refuses.
  void write(const void* data, int64_t bytes);
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Overwrites bytes already written (a header that is known last). Error(internal) beyond size(); Error(io) on a
  /// pipe.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  /// Bytes appended so far.
  int64_t size() const noexcept { return size_; }
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Flush, fsync, rename over the name, fsync of the folder. Once. Error(io) leaves the name as it was.
  void commit();

 private:
  void flush();

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty: written directly
  Descriptor descriptor_;
  std::vector<std::byte> buffer_;
  int64_t size_ = 0;
};

/// AtomicFile, write, commit. "-" is not special.
KEEL_API void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// A folder that appears under its name only when complete, filled under temporary().
class KEEL_API AtomicDirectory {
 public:
  /// Creates "<parent>/.<name>.tmp.<pid>.<n>", and the parents if missing. Error(io).
  explicit AtomicDirectory(const std::filesystem::path& path);
  AtomicDirectory(AtomicDirectory&& other) noexcept = default;
  AtomicDirectory& operator=(AtomicDirectory&& other) = delete;
  ~AtomicDirectory();

  /// Where to write the contents until commit().
  const std::filesystem::path& temporary() const noexcept { return temporary_; }
  const std::filesystem::path& path() const noexcept { return path_; }

  /// fsync of every file and folder inside, rename, fsync of the parent. An empty folder of that name is replaced; a
  /// full one only with `replace` (exchanged in one step where the file system can, then deleted), else Error(usage).
  /// Error(io).
  void commit(bool replace = false);

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Descriptor lock_;
};

/// Removes from `folder` (not below it) temporaries that no living process holds any more. Returns their names.
/// A folder that does not exist has none.
KEEL_API std::vector<std::string> remove_stale_temporaries(const std::filesystem::path& folder);

/// True for the names that AtomicFile and AtomicDirectory use for what is not complete.
KEEL_API bool is_temporary_name(std::string_view name);

}  // namespace keel
