#pragma once

#include <filesystem>
#include <string>

#include "keel/base/export.h"
#include "keel/base/files.h"

namespace keel {

/// An exclusive lock (flock) that ends with the object or the process, however that ends. The lock file stays; it holds
/// the owner's process number, host and start time for the message others get.
class KEEL_API FileLock {
 public:
  /// Creates the file if missing and locks it, without waiting. Error(io) "<what> is in use by process 123 on host h
  /// since 2026-01-02T03:04:05Z (path)" if another process (or another FileLock of this one) holds it.
  FileLock(const std::filesystem::path& path, const std::string& what);
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) noexcept = default;

  /// Error(io) if the file is no longer the one that was locked: it was removed, moved or replaced with its folder, and
  /// another process may hold a lock under the same name.
  void require_in_place() const;

  /// True if somebody holds the lock now. A missing file is not held.
  static bool is_held(const std::filesystem::path& path);

 private:
  std::filesystem::path path_;
  std::string what_;
  Descriptor descriptor_;
};

}  // namespace keel
