#include "hashed_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

namespace keel::detail {
namespace {

/// What is hashed and then written while it is still in the cache.
constexpr size_t kPiece = size_t{1} << 20;

}  // namespace

HashedFile::HashedFile(const std::string& path, std::function<void(int64_t)> progress)
    : path_(path),
      progress_(std::move(progress)),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!file_) throw system_error("cannot write", path, errno);
}

void HashedFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(kPiece, bytes.size()));
    hash_.update(piece.data(), piece.size());
    write_all(file_.get(), piece.data(), static_cast<int64_t>(piece.size()), path_);
    bytes_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
    if (progress_) progress_(static_cast<int64_t>(piece.size()));
  }
}

FileRecord HashedFile::finish() {
  sync_file(file_.get(), path_);
  file_.reset();
  return {std::filesystem::path(path_).filename().string(), bytes_, hex(hash_.digest())};
}

}  // namespace keel::detail
