#include "keel/data/shard_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <vector>

#include "keel/base/error.h"
#include "keel/data/megatron_index.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

fs::path with_suffix(const fs::path& prefix, const char* suffix) {
  return prefix.string() + suffix;
}

/// Collects small values into large writes.
class BufferedOutput {
 public:
  BufferedOutput(int descriptor, const fs::path& path) : descriptor_(descriptor), path_(path) {}
  template <class T>
  void put(T value) {
    put_bytes(&value, sizeof value);
  }
  void put_bytes(const void* data, int64_t bytes) {
    const char* begin = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), begin, begin + bytes);
    if (buffer_.size() >= (1 << 20)) flush();
  }
  void flush() {
    write_all(descriptor_, buffer_.data(), static_cast<int64_t>(buffer_.size()), path_);
    buffer_.clear();
  }

 private:
  int descriptor_;
  const fs::path& path_;
  std::vector<char> buffer_;
};

Descriptor create_file(const fs::path& path) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) throw system_error("cannot create", path, errno);
  return file;
}

}  // namespace

ShardWriter::ShardWriter(const fs::path& prefix, TokenDtype type)
    : prefix_(prefix), type_(type), bin_(create_file(bin_path())) {}

fs::path ShardWriter::bin_path() const {
  return with_suffix(prefix_, ".bin");
}

/// The open PREFIX.bin, at its end.
int ShardWriter::bin() {
  if (!bin_) {
    bin_ = Descriptor(open(bin_path().c_str(), O_WRONLY | O_CLOEXEC));
    if (!bin_ || lseek(bin_.get(), 0, SEEK_END) < 0) throw system_error("cannot write", bin_path(), errno);
  }
  return bin_.get();
}

void ShardWriter::suspend() {
  if (!bin_) return;
  sync_file(bin_.get(), bin_path());
  bin_.reset();
}

void ShardWriter::append_document(const int64_t* lengths, int64_t sequences) {
  for (int64_t i = 0; i < sequences; ++i) {
    if (lengths[i] > std::numeric_limits<int32_t>::max()) {
      throw Error(ErrorKind::format, fmt::format("a sequence of {} tokens; the format ends at 2147483647", lengths[i]),
                  bin_path().string());
    }
    lengths_.push_back(static_cast<int32_t>(lengths[i]));
    tokens_ += lengths[i];
  }
  document_ends_.push_back(this->sequences());
}

void ShardWriter::append_tokens(const void* data, int64_t bytes) {
  write_all(bin(), data, bytes, bin_path());
  bin_bytes_ += bytes;
}

void ShardWriter::rewind(const Mark& mark) {
  bin_bytes_ = mark.tokens * token_dtype_bytes(type_);
  if (ftruncate(bin(), bin_bytes_) != 0 || lseek(bin(), bin_bytes_, SEEK_SET) < 0) {
    throw system_error("cannot shorten", bin_path(), errno);
  }
  tokens_ = mark.tokens;
  lengths_.resize(mark.sequences);
  document_ends_.resize(mark.documents);
}

void ShardWriter::finish() {
  if (bin_bytes_ != tokens_ * token_dtype_bytes(type_)) {
    throw Error(ErrorKind::internal, fmt::format("{} bytes for {} tokens", bin_bytes_, tokens_), bin_path().string());
  }
  suspend();
  const fs::path path = with_suffix(prefix_, ".idx");
  const Descriptor file = create_file(path);
  write_index(file.get(), path);
  sync_file(file.get(), path);
}

void ShardWriter::write_index(int descriptor, const fs::path& path) const {
  BufferedOutput out(descriptor, path);
  out.put_bytes(detail::kMegatronMagic, sizeof detail::kMegatronMagic);
  out.put(detail::kMegatronVersion);
  out.put(megatron_code(type_));
  out.put(static_cast<uint64_t>(sequences()));
  out.put(static_cast<uint64_t>(documents() + 1));
  for (int32_t length : lengths_) out.put(length);
  int64_t offset = 0;
  for (int32_t length : lengths_) {
    out.put(offset);
    offset += length * token_dtype_bytes(type_);
  }
  out.put(int64_t{0});
  for (int64_t end : document_ends_) out.put(end);
  out.flush();
}

}  // namespace keel
