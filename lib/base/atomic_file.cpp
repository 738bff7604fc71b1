#include "keel/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBufferBytes = int64_t{1} << 20;
constexpr std::string_view kMark = ".tmp.";

fs::path parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

/// The folder or file that a path names, without a trailing slash.
fs::path without_trailing_slash(const fs::path& path) {
  return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
}

/// What a chain of symbolic links ends at; the end itself may be missing.
fs::path resolve_links(fs::path path) {
  std::error_code code;
  for (int hops = 0; hops < 40 && fs::is_symlink(path, code); ++hops) {
    const fs::path target = fs::read_symlink(path, code);
    if (code) break;
    path = target.is_absolute() ? target : parent_of(path) / target;
  }
  return path;
}

fs::path temporary_name(const fs::path& path) {
  static std::atomic<int> counter{0};
  // Names are at most 255 bytes; the end of a long one can go, the mark cannot.
  const std::string stem = path.filename().string().substr(0, 200);
  const std::string name =
      "." + stem + std::string(kMark) + std::to_string(::getpid()) + "." + std::to_string(counter.fetch_add(1));
  return parent_of(path) / name;
}

/// True if the lock was got and the name still leads to what the descriptor has open.
bool lock_if_free(int descriptor, const fs::path& path) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK && errno != EINTR;
  struct stat open_status {};
  struct stat named_status {};
  return ::fstat(descriptor, &open_status) == 0 && ::stat(path.c_str(), &named_status) == 0 &&
         open_status.st_ino == named_status.st_ino && open_status.st_dev == named_status.st_dev;
}

/// Calls create until the temporary it made is also locked: in between, a cleaner may take it for abandoned.
template <class Create>
Descriptor create_locked(const fs::path& target, fs::path& temporary, Create create) {
  for (;;) {
    temporary = temporary_name(target);
    Descriptor descriptor(create(temporary));
    if (!descriptor) {
      if (errno == EEXIST) continue;
      throw system_error("cannot create", target, errno);
    }
    if (lock_if_free(descriptor.get(), temporary)) return descriptor;
  }
}

int create_file(const fs::path& path) {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

int create_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0777) != 0) return -1;
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void sync_tree(const fs::path& folder) {
  std::error_code code;
  for (fs::recursive_directory_iterator entry(folder, code), end; entry != end; entry.increment(code)) {
    if (code) break;
    if (entry->is_symlink(code)) continue;
    if (entry->is_directory(code)) {
      sync_directory(entry->path());
    } else if (entry->is_regular_file(code)) {
      const Descriptor file(::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC));
      if (!file) throw system_error("cannot open", entry->path(), errno);
      sync_file(file.get(), entry->path());
    }
  }
  if (code) throw system_error("cannot read folder", folder, code.value());
  sync_directory(folder);
}

/// Puts `from` under the name `to` and what was there before under the name `from`.
void exchange(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) throw system_error("cannot replace", to, errno);
  const fs::path aside = temporary_name(to);
  if (::rename(to.c_str(), aside.c_str()) != 0) throw system_error("cannot replace", to, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error_number = errno;
    (void)::rename(aside.c_str(), to.c_str());
    throw system_error("cannot replace", to, error_number);
  }
  if (::rename(aside.c_str(), from.c_str()) != 0) throw system_error("cannot remove", aside, errno);
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(resolve_links(path)) {
  std::error_code code;
  const fs::file_status status = fs::status(path_, code);
  if (fs::is_directory(status) || !path_.has_filename()) throw system_error("cannot write", path, EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    descriptor_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    if (!descriptor_) throw system_error("cannot write", path, errno);
    return;
  }
  descriptor_ = create_locked(path_, temporary_, create_file);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ && !temporary_.empty()) (void)::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, int64_t bytes) {
  if (!descriptor_) throw Error(ErrorKind::internal, "write to a file that was committed", path_.string());
  if (static_cast<int64_t>(buffer_.size()) + bytes > kBufferBytes) flush();
  if (bytes >= kBufferBytes) {
    write_all(descriptor_.get(), data, bytes, path_);
  } else if (bytes > 0) {
    const size_t before = buffer_.size();
    buffer_.resize(before + static_cast<size_t>(bytes));
    std::memcpy(buffer_.data() + before, data, static_cast<size_t>(bytes));
  }
  size_ += bytes;
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write(bytes.data(), std::ssize(bytes));
}

void AtomicFile::write(std::string_view text) {
  write(text.data(), std::ssize(text));
}

void AtomicFile::write_at(int64_t offset, const void* data, int64_t bytes) {
  if (offset < 0 || bytes < 0 || offset > size_ - bytes) {
    throw Error(ErrorKind::internal, "write_at beyond the end of the file", path_.string());
  }
  flush();
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(descriptor_.get(), next, static_cast<size_t>(bytes), offset);
    if (written < 0) {
      if (errno == EINTR) continue;
      throw system_error("cannot write", path_, errno);
    }
    next += written;
    offset += written;
    bytes -= written;
  }
}

void AtomicFile::flush() {
  write_all(descriptor_.get(), buffer_.data(), std::ssize(buffer_), path_);
  buffer_.clear();
}

void AtomicFile::commit() {
  if (!descriptor_) throw Error(ErrorKind::internal, "file committed twice", path_.string());
  flush();
  if (!temporary_.empty()) {
    sync_file(descriptor_.get(), path_);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw system_error("cannot write", path_, errno);
  }
  descriptor_.reset();
  if (!temporary_.empty()) sync_directory(parent_of(path_));
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AtomicDirectory::AtomicDirectory(const fs::path& path) : path_(resolve_links(without_trailing_slash(path))) {
  make_directories(parent_of(path_));
  lock_ = create_locked(path_, temporary_, create_folder);
}

AtomicDirectory::~AtomicDirectory() {
  if (!lock_) return;
  std::error_code code;
  fs::remove_all(temporary_, code);
}

void AtomicDirectory::commit(bool replace) {
  if (!lock_) throw Error(ErrorKind::internal, "folder committed twice", path_.string());
  require_absent(path_, replace);
  sync_tree(temporary_);
  std::error_code code;
  if (replace && fs::exists(path_, code) && !fs::is_empty(path_, code)) {
    exchange(temporary_, path_);
    sync_directory(parent_of(path_));
    lock_.reset();
    fs::remove_all(temporary_, code);
    return;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {  // refused by the system for a folder with something in it
    const int error_number = errno;
    if (!replace) require_absent(path_, false);
    throw system_error("cannot write", path_, error_number);
  }
  lock_.reset();
  sync_directory(parent_of(path_));
}

bool is_temporary_name(std::string_view name) {
  const size_t mark = name.rfind(kMark);
  if (name.empty() || name[0] != '.' || mark == std::string_view::npos) return false;
  const std::string_view rest = name.substr(mark + kMark.size());
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const size_t dot = rest.find('.');
  return dot != std::string_view::npos && dot > 0 && dot + 1 < rest.size() &&
         std::all_of(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(dot), is_digit) &&
         std::all_of(rest.begin() + static_cast<std::ptrdiff_t>(dot) + 1, rest.end(), is_digit);
}

std::vector<std::string> remove_stale_temporaries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    if (is_temporary_name(entry->path().filename().string())) found.push_back(entry->path());
  }
  std::vector<std::string> removed;
  for (const fs::path& path : found) {
    const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!descriptor || !lock_if_free(descriptor.get(), path)) continue;
    fs::remove_all(path, code);
    if (!code) removed.push_back(path.filename().string());
  }
  std::sort(removed.begin(), removed.end());
  return removed;
}

}  // namespace keel
