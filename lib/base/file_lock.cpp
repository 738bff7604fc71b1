#include "keel/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "keel/base/clock.h"
#include "keel/base/process.h"

namespace keel {
namespace {

/// Locks without waiting; false if somebody else has it. Error(io) for everything else.
bool try_lock(int descriptor, const std::filesystem::path& path) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw system_error("cannot lock", path, errno);
  }
  return true;
}

std::string holder_of(int descriptor) {
  char text[256];
  const ssize_t got = ::pread(descriptor, text, sizeof text, 0);
  std::string holder(text, got > 0 ? static_cast<size_t>(got) : 0);
  holder.resize(std::min(holder.size(), holder.find('\n')));
  return holder.empty() ? "another process" : holder;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::string& what)
    : path_(std::filesystem::absolute(path)),
      what_(what),
      descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (!descriptor_) throw system_error("cannot create", path, errno);
  if (!try_lock(descriptor_.get(), path)) {
    throw Error(ErrorKind::io, what + " is in use by " + holder_of(descriptor_.get()), path.string());
  }
  const std::string owner =
      "process " + std::to_string(::getpid()) + " on host " + host_name() + " since " + utc_time() + "\n";
  if (::ftruncate(descriptor_.get(), 0) != 0) throw system_error("cannot write", path, errno);
  write_all(descriptor_.get(), owner.data(), std::ssize(owner), path);
}

void FileLock::require_in_place() const {
  struct stat locked, named;
  const bool same = ::fstat(descriptor_.get(), &locked) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                    locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
  if (!same) throw Error(ErrorKind::io, what_ + " was removed or replaced while in use", path_.parent_path().string());
}

bool FileLock::is_held(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file && !try_lock(file.get(), path);
}

}  // namespace keel
