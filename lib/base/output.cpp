#include "keel/base/output.h"

#include <cerrno>
#include <cstdio>

#include "keel/base/files.h"

namespace keel {
namespace {

[[noreturn]] void throw_write_error(int error_number) {
  if (error_number == EPIPE) throw ClosedPipe{};
  throw system_error("cannot write", "stdout", error_number);
}

}  // namespace

void write_stdout(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) throw_write_error(errno);
}

void flush_stdout() {
  errno = 0;
  if (std::fflush(stdout) != 0) throw_write_error(errno);
  if (std::ferror(stdout) != 0) throw_write_error(errno != 0 ? errno : EIO);
}

}  // namespace keel
