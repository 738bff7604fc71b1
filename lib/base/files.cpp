#include "keel/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;

struct stat status_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw system_error("cannot read", path, errno);
  return status;
}

std::string read_descriptor(int descriptor, const fs::path& name, int64_t max_bytes, ErrorKind too_large) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw system_error("cannot read", name, errno);
  std::string text;
  if (status.st_size <= max_bytes) {
    text.reserve(static_cast<size_t>(status.st_size) + 1);
    constexpr size_t kMinimum = size_t{1} << 16;
    while (static_cast<int64_t>(text.size()) <= max_bytes) {
      const size_t before = text.size();
      text.resize(std::max(text.capacity(), before + kMinimum));
      const ssize_t got = ::read(descriptor, text.data() + before, text.size() - before);
      const int error_number = errno;
      text.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got == 0) return text;
      if (got < 0 && error_number != EINTR) throw system_error("cannot read", name, error_number);
    }
  }
  throw Error(too_large, "file has more than " + std::to_string(max_bytes) + " bytes", name.string());
}

}  // namespace

Error system_error(std::string_view action, const fs::path& path, int error_number) {
  const std::string reason = std::error_code(error_number, std::generic_category()).message();
  return Error(ErrorKind::io, std::string(action) + ": " + reason, path.string());
}

std::string read_file(const fs::path& path, int64_t max_bytes, ErrorKind too_large) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw system_error("cannot read", path, errno);
  return read_descriptor(file.get(), path, max_bytes, too_large);
}

std::string read_regular_file(const fs::path& path, int64_t max_bytes, ErrorKind too_large) {
  const Descriptor file = open_regular_file(path);
  return read_descriptor(file.get(), path, max_bytes, too_large);
}

std::string read_stdin(int64_t max_bytes, ErrorKind too_large) {
  return read_descriptor(STDIN_FILENO, "stdin", max_bytes, too_large);
}

bool is_there(const fs::path& path) noexcept {
  std::error_code code;
  return fs::exists(fs::symlink_status(path, code));
}

int64_t size_of_file(const fs::path& path) {
  const struct stat status = status_of(path);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::io, "not a regular file", path.string());
  return status.st_size;
}

void make_directories(const fs::path& path) {
  if (path.empty()) return;
  std::error_code code;
  fs::create_directories(path, code);
  if (code) throw system_error("cannot create folder", path, code.value());
  if (!fs::is_directory(path, code)) throw system_error("cannot create folder", path, ENOTDIR);
}

void require_file(const fs::path& path) {
  if (S_ISDIR(status_of(path).st_mode)) throw system_error("cannot read", path, EISDIR);
}

void require_directory(const fs::path& path) {
  if (!S_ISDIR(status_of(path).st_mode)) throw system_error("cannot read folder", path, ENOTDIR);
}

void require_absent(const fs::path& path, bool force, const std::string& hint) {
  if (force) return;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) return;
  if (fs::is_directory(status) ? fs::is_empty(path, code) : !fs::is_regular_file(status)) return;
  throw Error(ErrorKind::usage, "output exists already", path.string(),
              hint.empty() ? "use --force to replace it" : hint);
}

void write_all(int descriptor, const void* data, int64_t bytes, const fs::path& path) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, next, static_cast<size_t>(bytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      throw system_error("cannot write", path, errno);
    }
    next += written;
    bytes -= written;
  }
}

void sync_file(int descriptor, const fs::path& path) {
  while (::fsync(descriptor) != 0) {
    if (errno == EINVAL || errno == ENOTSUP) return;
    if (errno != EINTR) throw system_error("cannot write", path, errno);
  }
}

void sync_directory(const fs::path& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) throw system_error("cannot open folder", path, errno);
  sync_file(folder.get(), path);
}

int64_t free_disk_bytes(const fs::path& path) {
  fs::path existing = fs::absolute(path);
  std::error_code code;
  while (!fs::exists(existing, code) && existing.has_relative_path()) existing = existing.parent_path();
  struct statvfs status {};
  if (::statvfs(existing.c_str(), &status) != 0) throw system_error("cannot read free space", existing, errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    number_ = other.release();
  }
  return *this;
}

int Descriptor::release() noexcept {
  const int number = number_;
  number_ = -1;
  return number;
}

void Descriptor::reset() noexcept {
  if (number_ >= 0) (void)::close(number_);
  number_ = -1;
}

Descriptor open_regular_file(const fs::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw system_error("cannot read", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw system_error("cannot read", path, errno);
  if (S_ISDIR(status.st_mode)) throw system_error("cannot read", path, EISDIR);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::io, "not a regular file", path.string());
  return file;
}

}  // namespace keel
