#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/checkpoint/safetensors.h"

namespace keel::detail {

/// A new file that is hashed while it is written. Every call throws Error(io) with the system's reason.
class HashedFile {
 public:
  /// Creates or empties the file. `progress` as in write_safetensors.
  explicit HashedFile(const std::string& path, std::function<void(int64_t)> progress = {});
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// fsync and close.
  FileRecord finish();

 private:
  std::string path_;
  std::function<void(int64_t)> progress_;
  Descriptor file_;
  Xxh3 hash_;
  int64_t bytes_ = 0;
};

}  // namespace keel::detail
