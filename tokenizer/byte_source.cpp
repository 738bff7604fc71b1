#include "keel/tokenizer/byte_source.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/base/signals.h"

namespace keel {
namespace {

constexpr int64_t kRawBuffer = 256 << 10;
constexpr int kSmallWindowLog = 27;  // what the zstd program accepts unasked
constexpr int kLargestWindowLog = 31;
constexpr int64_t kLargeWindowFile = 16 << 20;

/// The file as it lies on the disk, with a window of bytes not yet consumed.
class RawFile {
 public:
  RawFile(const std::string& path, const std::atomic<bool>* cancelled)
      : path_(path), cancelled_(cancelled), buffer_(kRawBuffer) {
    // Not blocking, so that a pipe that nobody writes to yet is waited for where signals are heard.
    const int number = path == "-" ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    descriptor_ = Descriptor(number);
    if (!descriptor_) throw system_error("cannot open", source_name(path), errno);
    struct stat status {};
    if (fstat(descriptor_.get(), &status) != 0) throw system_error("cannot read", source_name(path), errno);
    if (S_ISDIR(status.st_mode)) throw Error(ErrorKind::io, "a folder where a file is wanted", path);
    const bool device = S_ISBLK(status.st_mode) || (S_ISCHR(status.st_mode) && isatty(number) == 0);
    if (device && path != "-") throw Error(ErrorKind::io, "a device where a file or a pipe is wanted", path);
    regular_ = S_ISREG(status.st_mode);
    size_ = regular_ ? status.st_size : -1;
    // Standard input may be a file of which another program has read the beginning.
    const off_t at = regular_ ? lseek(descriptor_.get(), 0, SEEK_CUR) : 0;
    promised_ = std::max<int64_t>(size_ - std::max<off_t>(at, 0), 0);
  }

  /// Bytes read and not consumed.
  std::string_view window() const { return {buffer_.data() + begin_, static_cast<size_t>(end_ - begin_)}; }
  void consume(int64_t bytes) { begin_ += bytes; }

  /// Reads until the window has `wanted` bytes or the file ends.
  void fill(int64_t wanted) {
    while (end_ - begin_ < wanted && !ended_) {
      if (begin_ > 0) {
        const int64_t kept = std::max<int64_t>(end_ - begin_, 0);  // never below; g++ 12 fears so under sanitizers
        std::memmove(buffer_.data(), buffer_.data() + begin_, kept);
        end_ = kept;
        begin_ = 0;
      }
      end_ += take(buffer_.data() + end_, kRawBuffer - end_);
    }
  }

  /// A read past the window, straight into the caller's memory.
  int64_t take(char* to, int64_t bytes) {
    if (ended_) return 0;
    ssize_t got;
    do {
      wait_for_input();
      throw_if_cancelled();
      got = ::read(descriptor_.get(), to, bytes);
    } while (got < 0 && (errno == EINTR || errno == EAGAIN));
    if (got < 0) throw system_error("cannot read", source_name(path_), errno);
    ended_ = got == 0;
    taken_ += got;
    if (ended_ && taken_ < promised_) {
      throw damaged(fmt::format("the file became shorter while it was read: {} of {} bytes", taken_, promised_));
    }
    hash_.update(to, got);
    return got;
  }

  int64_t size() const { return size_; }
  int64_t taken() const { return taken_; }
  std::string xxh3() const { return hex(hash_.digest()); }
  Error damaged(std::string_view what) const { return {ErrorKind::format, std::string(what), source_name(path_)}; }

 private:
  // A read from a pipe may block for ever; what happens in other threads must end it all the same.
  void wait_for_input() const {
    pollfd waiting{descriptor_.get(), POLLIN, 0};
    while (!regular_ && poll(&waiting, 1, 100) <= 0) throw_if_cancelled();
  }

  void throw_if_cancelled() const {
    throw_if_stopped();
    if (cancelled_ != nullptr && *cancelled_) throw ReadCancelled{};
  }

  std::string path_;
  const std::atomic<bool>* cancelled_;
  Descriptor descriptor_;
  bool regular_ = false;
  int64_t size_ = -1;
  int64_t promised_ = 0;  // bytes there were to read when the file was opened
  std::vector<char> buffer_;
  int64_t begin_ = 0, end_ = 0;
  bool ended_ = false;
  int64_t taken_ = 0;
  Xxh3 hash_;
};

class RawSource : public ByteSource {
 public:
  explicit RawSource(std::unique_ptr<RawFile> file) : file_(std::move(file)) {}
  int64_t bytes_taken() const override { return file_->taken(); }
  std::string xxh3() const override { return file_->xxh3(); }

 protected:
  std::unique_ptr<RawFile> file_;
};

class PlainSource : public RawSource {
 public:
  using RawSource::RawSource;
  const char* compression() const override { return "none"; }

  int64_t read(char* buffer, int64_t bytes) override {
    const std::string_view window = file_->window();
    if (window.empty()) return file_->take(buffer, bytes);
    const int64_t copied = std::min<int64_t>(bytes, window.size());
    std::memcpy(buffer, window.data(), copied);
    file_->consume(copied);
    return copied;
  }
};

class GzipSource : public RawSource {
 public:
  explicit GzipSource(std::unique_ptr<RawFile> file) : RawSource(std::move(file)) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  const char* compression() const override { return "gzip"; }

  int64_t read(char* buffer, int64_t bytes) override {
    const int64_t limit = std::min<int64_t>(bytes, 1 << 30);  // zlib counts in 32 bits
    stream_.next_out = reinterpret_cast<Bytef*>(buffer);
    stream_.avail_out = static_cast<uInt>(limit);
    while (!done_ && stream_.avail_out == limit) step();
    return limit - stream_.avail_out;
  }

 private:
  void step() {
    file_->fill(1);
    const std::string_view window = file_->window();
    if (window.empty()) throw file_->damaged("truncated gzip file: it ends inside a member");
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(window.data()));
    stream_.avail_in = static_cast<uInt>(window.size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    file_->consume(static_cast<int64_t>(window.size()) - stream_.avail_in);
    if (result == Z_STREAM_END) return next_member();
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_BUF_ERROR) {
      throw file_->damaged(fmt::format("damaged gzip file: {} near byte {}",
                                       stream_.msg == nullptr ? "bad data" : stream_.msg,
                                       file_->taken() - static_cast<int64_t>(file_->window().size())));
    }
  }

  void next_member() {
    file_->fill(2);
    if (file_->window().starts_with("\x1f\x8b")) {
      inflateReset(&stream_);
      return;
    }
    for (file_->fill(1); !file_->window().empty(); file_->fill(1)) {
      const size_t zeros = std::min(file_->window().find_first_not_of('\0'), file_->window().size());
      if (zeros == 0) throw file_->damaged("damaged gzip file: other bytes follow its last member");
      file_->consume(static_cast<int64_t>(zeros));
    }
    done_ = true;
  }

  z_stream stream_{};
  bool done_ = false;
};

class ZstdSource : public RawSource {
 public:
  explicit ZstdSource(std::unique_ptr<RawFile> file) : RawSource(std::move(file)), context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
    const int64_t size = file_->size();
    // The window is allocated because a header says so; a small file does not get to ask for gigabytes.
    const int window_log = size >= 0 && size < kLargeWindowFile ? kSmallWindowLog : kLargestWindowLog;
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, window_log);
  }
  ~ZstdSource() override { ZSTD_freeDCtx(context_); }
  const char* compression() const override { return "zstd"; }

  int64_t read(char* buffer, int64_t bytes) override {
    ZSTD_outBuffer out{buffer, static_cast<size_t>(bytes), 0};
    while (out.pos == 0) {
      file_->fill(1);
      const std::string_view window = file_->window();
      // With the input at its end the decoder may still hold output of the open frame.
      if (window.empty() && (!in_frame_ || drained_)) {
        if (in_frame_) throw file_->damaged("truncated zstd file: it ends inside a frame");
        return 0;
      }
      step(window, out);
    }
    return static_cast<int64_t>(out.pos);
  }

 private:
  void step(std::string_view window, ZSTD_outBuffer& out) {
    ZSTD_inBuffer in{window.data(), window.size(), 0};
    const size_t result = ZSTD_decompressStream(context_, &out, &in);
    if (ZSTD_isError(result)) fail(result);
    file_->consume(static_cast<int64_t>(in.pos));
    in_frame_ = result != 0;
    drained_ = window.empty() && out.pos == 0;
  }

  void fail(size_t result) {
    switch (ZSTD_getErrorCode(result)) {
      case ZSTD_error_memory_allocation:
        throw std::bad_alloc();
      case ZSTD_error_frameParameter_windowTooLarge:
        throw file_->damaged("zstd file with a window above 128 MiB: decompress it first with zstd -d --long=31");
      case ZSTD_error_prefix_unknown:
        throw file_->damaged("damaged zstd file: other bytes follow a frame");
      default:
        throw file_->damaged(fmt::format("damaged zstd file: {} near byte {}", ZSTD_getErrorName(result),
                                         file_->taken() - static_cast<int64_t>(file_->window().size())));
    }
  }

  ZSTD_DCtx* context_;
  bool in_frame_ = false;
  bool drained_ = false;
};

bool is_zstd(std::string_view head) {
  if (head.size() == 2 || head.size() == 3) return std::string_view("\x28\xb5\x2f").starts_with(head);  // cut off
  if (head.size() < 4) return false;
  const bool skippable = (static_cast<unsigned char>(head[0]) & 0xF0) == 0x50 && head.substr(1, 3) == "\x2a\x4d\x18";
  return skippable || head.starts_with("\x28\xb5\x2f\xfd");
}

void refuse_foreign(std::string_view head, const std::string& path) {
  const auto refuse = [&](const char* what, const char* hint) {
    throw Error(ErrorKind::usage, what, source_name(path), hint);
  };
  constexpr const char* kHint = "gzip and zstd are read directly; decompress this first";
  if (head.starts_with("BZh")) refuse("bzip2 input is not read by this version", kHint);
  if (head.starts_with(std::string_view("\xFD"
                                        "7zXZ\0",
                                        6)))
    refuse("xz input is not read by this version", kHint);
  if (head.starts_with("\x04\x22\x4d\x18")) refuse("lz4 input is not read by this version", kHint);
  if (head.starts_with("PK\x03\x04")) refuse("zip input is not read by this version", kHint);
  if (head.starts_with("PAR1")) refuse("parquet input is not read by this version", "convert it to jsonl first");
}

}  // namespace

ByteSource::~ByteSource() = default;

std::unique_ptr<ByteSource> open_source(const std::string& path, const std::atomic<bool>* cancelled) {
  auto file = std::make_unique<RawFile>(path, cancelled);
  file->fill(6);
  const std::string_view head = file->window();
  refuse_foreign(head, path);
  if (head.starts_with("\x1f\x8b")) return std::make_unique<GzipSource>(std::move(file));
  if (is_zstd(head)) return std::make_unique<ZstdSource>(std::move(file));
  return std::make_unique<PlainSource>(std::move(file));
}

std::string source_name(const std::string& path) {
  return path == "-" ? "standard input" : path;
}

std::string read_start(ByteSource& source, int64_t most) {
  constexpr int64_t kStep = 1 << 18;
  std::string bytes;
  while (std::ssize(bytes) < most) {
    const auto before = std::ssize(bytes);
    const int64_t wanted = std::min(kStep, most - before);
    bytes.resize(static_cast<size_t>(before + wanted));
    const int64_t got = source.read(bytes.data() + before, wanted);
    bytes.resize(static_cast<size_t>(before + got));
    if (got == 0) break;
  }
  return bytes;
}

std::string read_source(const std::string& path, int64_t max_bytes) {
  std::string bytes = read_start(*open_source(path), max_bytes + 1);
  if (std::ssize(bytes) > max_bytes) {
    throw Error(ErrorKind::format, "more than " + std::to_string(max_bytes) + " bytes", source_name(path));
  }
  return bytes;
}

}  // namespace keel
