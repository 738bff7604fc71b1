#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "keel/base/export.h"

namespace keel {

/// A whole file, mapped read-only. Pages are shared with the system's cache: they are not anonymous memory.
/// A file that another process shortens while it is mapped ends this process by SIGBUS (see
/// install_signal_handlers for what a tool says then): map what is complete only.
class KEEL_API MappedFile {
 public:
  enum class Advice { normal, sequential, random, will_need };

  /// Nothing mapped: bytes() is empty.
  MappedFile() = default;
  /// Error(io) if the file is missing, unreadable or no regular file. An empty file gives empty bytes().
  explicit MappedFile(const std::filesystem::path& path, Advice advice = Advice::normal);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {data_, static_cast<size_t>(size_)}; }
  int64_t size() const noexcept { return size_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  void advise(Advice advice) const noexcept;
  /// Pages that `part`, of bytes(), touches leave this process's resident memory, not the system's cache; whoever reads
  /// them again gets them back.
  void release(std::span<const std::byte> part) const noexcept;

 private:
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
  std::filesystem::path path_;
};

}  // namespace keel
