#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "keel/base/export.h"

namespace keel {

/// Thrown by reads that somebody else called off.
struct KEEL_API ReadCancelled {};

/// The bytes of an input, decompressed.
class KEEL_API ByteSource {
 public:
  virtual ~ByteSource();
  /// Fills up to `bytes` bytes; 0 is the end, which is reached only if the whole input was sound.
  /// Error(io) if the system cannot read, Error(format) if the input is damaged, Stopped after a signal.
  virtual int64_t read(char* buffer, int64_t bytes) = 0;
  /// "none", "gzip", "zstd".
  virtual const char* compression() const = 0;
  /// Bytes taken from the file so far, as they lie on the disk.
  virtual int64_t bytes_taken() const = 0;
  /// XXH3 of all bytes taken so far, as they lie on the disk.
  virtual std::string xxh3() const = 0;
};

/// Opens a file or a pipe, or standard input for "-"; a device is Error(io). What it is is decided by its first bytes,
/// never by its name:
///   gzip: every member; zero bytes after the last one are padding, anything else there is damage
///   zstd: every frame, skippable ones passed over; windows up to 128 MiB, and up to 2 GiB (`zstd --long=31`) in files
///         of 16 MiB and more
/// An end inside a member or frame, a wrong checksum, and a regular file that ends before the size it had when it was
/// opened, are damage; one that grew meanwhile is read to its new end. Other containers (bzip2, xz, lz4, zip, parquet)
/// are Error(usage) that names them. Memory: at most 1 MiB, and the window of a zstd frame. Once *cancelled is set,
/// reads throw ReadCancelled, one that waits for a pipe within 0.1 s; after a signal Stopped, as soon.
KEEL_API std::unique_ptr<ByteSource> open_source(const std::string& path, const std::atomic<bool>* cancelled = nullptr);

/// All of an input, decompressed; Error(format) if it has more than `max_bytes`. Errors as open_source and read.
KEEL_API std::string read_source(const std::string& path, int64_t max_bytes);
/// Its first `most` bytes, or all if it has fewer.
KEEL_API std::string read_start(ByteSource& source, int64_t most);

/// The path for messages: "standard input" for "-".
KEEL_API std::string source_name(const std::string& path);

}  // namespace keel
