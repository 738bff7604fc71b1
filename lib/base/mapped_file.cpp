#include "keel/base/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "keel/base/files.h"

namespace keel {

MappedFile::MappedFile(const std::filesystem::path& path, Advice advice) : path_(path) {
  const Descriptor file = open_regular_file(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw system_error("cannot read", path, errno);
  if (status.st_size == 0) return;
  void* data = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) throw system_error("cannot map", path, errno);
  data_ = static_cast<const std::byte*>(data);
  size_ = status.st_size;
  if (advice != Advice::normal) advise(advice);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) (void)::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

void MappedFile::advise(Advice advice) const noexcept {
  if (data_ == nullptr) return;
  int flag = MADV_NORMAL;
  switch (advice) {
    case Advice::normal:
      flag = MADV_NORMAL;
      break;
    case Advice::sequential:
      flag = MADV_SEQUENTIAL;
      break;
    case Advice::random:
      flag = MADV_RANDOM;
      break;
    case Advice::will_need:
      flag = MADV_WILLNEED;
      break;
  }
  (void)::madvise(const_cast<std::byte*>(data_), static_cast<size_t>(size_), flag);
}

void MappedFile::release(std::span<const std::byte> part) const noexcept {
  if (part.empty()) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = static_cast<size_t>(part.data() - data_) / page * page;
  const size_t end = static_cast<size_t>(part.data() - data_) + part.size();
  (void)::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace keel
