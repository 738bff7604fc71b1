#include "keel/base/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "keel/base/atomic_file.h"

namespace keel {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;

/// Offset after the last newline of the first `size` bytes.
int64_t end_of_last_line(int descriptor, int64_t size, const std::filesystem::path& path) {
  char block[4096];
  int64_t end = size;
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(sizeof block));
    const ssize_t got = ::pread(descriptor, block, static_cast<size_t>(end - begin), begin);
    if (got <= 0) throw system_error("cannot read", path, got == 0 ? EIO : errno);
    for (ssize_t i = got; i > 0; --i) {
      if (block[i - 1] == '\n') return begin + i;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

LineAppender::LineAppender(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!descriptor_) throw system_error("cannot write", path, errno);
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) throw system_error("cannot read", path, errno);
  if (!S_ISREG(status.st_mode)) return;
  size_ = end_of_last_line(descriptor_.get(), status.st_size, path);
  dropped_ = status.st_size - size_;
  if (dropped_ > 0 && ::ftruncate(descriptor_.get(), size_) != 0) throw system_error("cannot write", path, errno);
}

LineAppender::~LineAppender() {
  try {
    if (descriptor_) flush();
  } catch (...) {
    // Said in the contract: who needs to know calls flush().
  }
}

void LineAppender::append(std::string_view line) {
  if (line.find('\n') != std::string_view::npos) {
    throw Error(ErrorKind::internal, "a line with a newline inside", path_.string());
  }
  buffer_.append(line);
  buffer_.push_back('\n');
  if (buffer_.size() >= kBufferBytes) flush();
}

void LineAppender::flush() {
  int64_t written = 0;
  const int64_t total = std::ssize(buffer_);
  while (written < total) {
    const ssize_t count = ::write(descriptor_.get(), buffer_.data() + written, static_cast<size_t>(total - written));
    if (count < 0 && errno != EINTR) {
      const int error_number = errno;
      const size_t whole = buffer_.rfind('\n', static_cast<size_t>(written) - 1);
      const int64_t kept = written == 0 || whole == std::string::npos ? 0 : static_cast<int64_t>(whole) + 1;
      if (kept != written) (void)!::ftruncate(descriptor_.get(), size_ + kept);
      buffer_.erase(0, static_cast<size_t>(kept));
      size_ += kept;
      throw system_error("cannot write", path_, error_number);
    }
    written += std::max<ssize_t>(count, 0);
  }
  size_ += total;
  buffer_.clear();
}

void LineAppender::sync() {
  flush();
  sync_file(descriptor_.get(), path_);
}

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return {};
  const std::string text = read_file(path, int64_t{1} << 40);
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

void write_lines(const std::filesystem::path& path, const std::vector<std::string>& lines) {
  AtomicFile file(path);
  for (const std::string& line : lines) {
    file.write(line);
    file.write("\n");
  }
  file.commit();
}

}  // namespace keel
