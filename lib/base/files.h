#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "keel/base/error.h"
#include "keel/base/export.h"

namespace keel {

/// An Error(io) for a call that just failed: "cannot <action>: <system's words for errno> (<path>)".
KEEL_API Error system_error(std::string_view action, const std::filesystem::path& path, int error_number);

/// The whole file, or all that a pipe gives. Error(io) if it cannot be read, Error(too_large) if it has more than
/// max_bytes. "-" is not special.
KEEL_API std::string read_file(const std::filesystem::path& path, int64_t max_bytes = int64_t{1} << 30,
                               ErrorKind too_large = ErrorKind::format);
/// The same of a regular file, which is opened without waiting: Error(io) for a pipe, a device or a folder. For files
/// that are found in somebody's folder.
KEEL_API std::string read_regular_file(const std::filesystem::path& path, int64_t max_bytes,
                                       ErrorKind too_large = ErrorKind::format);
/// The same of stdin, "stdin" in messages.
KEEL_API std::string read_stdin(int64_t max_bytes = int64_t{1} << 30, ErrorKind too_large = ErrorKind::format);

/// A small file that is kept in memory.
struct FileContent {
  std::string name;  ///< without a folder
  std::string bytes;
};

/// Whether something has this name, be it a link that leads nowhere: opening it then says what is wrong.
KEEL_API bool is_there(const std::filesystem::path& path) noexcept;

/// Bytes of a regular file. Error(io) if it is missing or something else.
KEEL_API int64_t size_of_file(const std::filesystem::path& path);

/// Creates the folder and its parents; one that exists is fine. Error(io).
KEEL_API void make_directories(const std::filesystem::path& path);

/// Error(io) naming the path unless it is an existing file (folder).
KEEL_API void require_file(const std::filesystem::path& path);
KEEL_API void require_directory(const std::filesystem::path& path);

/// Output is never overwritten silently: Error(usage) "output exists already (path): use --force to replace it" unless
/// `force` is set or nothing is there. An empty folder counts as nothing, and so do pipes and devices. `hint` replaces
/// the hint.
KEEL_API void require_absent(const std::filesystem::path& path, bool force, const std::string& hint = {});

/// Writes all bytes to a descriptor, whatever the number of calls it takes. Error(io) names `path`.
KEEL_API void write_all(int descriptor, const void* data, int64_t bytes, const std::filesystem::path& path);

/// Waits until what was written is on the disk. File systems that cannot sync a folder are no error. Error(io).
KEEL_API void sync_file(int descriptor, const std::filesystem::path& path);
KEEL_API void sync_directory(const std::filesystem::path& path);

/// Bytes a user may still write where `path` lies (its nearest existing parent). Error(io).
KEEL_API int64_t free_disk_bytes(const std::filesystem::path& path);

/// A file descriptor, closed by the destructor. -1 is none.
class KEEL_API Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }

  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }
  int release() noexcept;
  void reset() noexcept;

 private:
  int number_ = -1;
};

/// Opens a regular file for reading. Error(io) if it is missing or something else; a pipe without a writer is no wait.
KEEL_API Descriptor open_regular_file(const std::filesystem::path& path);

}  // namespace keel
