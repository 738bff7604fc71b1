#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/files.h"

namespace keel {

/// A text file that grows by whole lines (metrics.jsonl). Lines reach the system at flush(), the disk at sync().
/// A reader may see the file at any time; a crash or a full disk can tear the last line only, and opening drops a torn
/// one.
class KEEL_API LineAppender {
 public:
  /// Creates or continues. A last line without its newline is cut off (see dropped()). Error(io).
  explicit LineAppender(const std::filesystem::path& path);
  LineAppender(LineAppender&& other) noexcept = default;
  LineAppender& operator=(LineAppender&& other) = delete;
  /// Flushes; errors are lost here, so call flush() or sync() first.
  ~LineAppender();

  /// Adds `line` and a newline; `line` must not hold one (Error(internal)). Buffered up to 64 KiB.
  void append(std::string_view line);
  /// Hands everything to the system. If it refuses (full disk), what it took of this batch is cut off again up to the
  /// last whole line, and Error(io) is thrown.
  void flush();
  /// flush() and wait for the disk: every line so far survives a power cut.
  void sync();

  /// Bytes of the torn last line that was cut off on opening.
  int64_t dropped() const noexcept { return dropped_; }
  /// Bytes of the file, appended lines included.
  int64_t size() const noexcept { return size_ + static_cast<int64_t>(buffer_.size()); }

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
  std::string buffer_;
  int64_t size_ = 0;
  int64_t dropped_ = 0;
};

/// The whole lines of a file, without newlines; a torn last one is left out. A missing file has none. Error(io).
KEEL_API std::vector<std::string> read_lines(const std::filesystem::path& path);

/// Replaces a file by `lines`, atomically and durably (AtomicFile). Error(io).
KEEL_API void write_lines(const std::filesystem::path& path, const std::vector<std::string>& lines);

}  // namespace keel
