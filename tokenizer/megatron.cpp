#include "keel/tokenizer/megatron.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "MMIDIDX\0";  // 9 bytes with the terminating zero
constexpr int64_t kMagicBytes = 9;
constexpr uint64_t kVersion = 1;
constexpr int64_t kHeaderBytes = 34;

fs::path with_suffix(const fs::path& prefix, const char* suffix) {
  return prefix.string() + suffix;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
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
  if (!file) throw system_error("create", path, errno);
  return file;
}

template <class T>
ShardReader::Range range_of(const std::byte* data, int64_t count) {
  T smallest = load<T>(data), largest = smallest;
  for (int64_t i = 1; i < count; ++i) {
    const T id = load<T>(data + i * sizeof(T));
    smallest = std::min(smallest, id);
    largest = std::max(largest, id);
  }
  return {static_cast<int64_t>(smallest), static_cast<int64_t>(largest)};
}

}  // namespace

int64_t token_bytes(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8:
      return 1;
    case TokenType::int16:
    case TokenType::uint16:
      return 2;
    case TokenType::int32:
      return 4;
    case TokenType::int64:
      return 8;
  }
  return 0;
}

const char* token_type_name(TokenType type) {
  switch (type) {
    case TokenType::uint8:
      return "uint8";
    case TokenType::int8:
      return "int8";
    case TokenType::int16:
      return "int16";
    case TokenType::uint16:
      return "uint16";
    case TokenType::int32:
      return "int32";
    case TokenType::int64:
      return "int64";
  }
  return "unknown";
}

TokenType token_type_for(int64_t largest_id) {
  return largest_id <= std::numeric_limits<uint16_t>::max() ? TokenType::uint16 : TokenType::int32;
}

ShardWriter::ShardWriter(const fs::path& prefix, TokenType type)
    : prefix_(prefix), type_(type), bin_(create_file(bin_path())) {}

fs::path ShardWriter::bin_path() const {
  return with_suffix(prefix_, ".bin");
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
  write_all(bin_.get(), data, bytes, bin_path());
  bin_bytes_ += bytes;
}

void ShardWriter::rewind(const Mark& mark) {
  bin_bytes_ = mark.tokens * token_bytes(type_);
  if (ftruncate(bin_.get(), bin_bytes_) != 0 || lseek(bin_.get(), bin_bytes_, SEEK_SET) < 0) {
    throw system_error("shorten", bin_path(), errno);
  }
  tokens_ = mark.tokens;
  lengths_.resize(mark.sequences);
  document_ends_.resize(mark.documents);
}

void ShardWriter::finish() {
  if (bin_bytes_ != tokens_ * token_bytes(type_)) {
    throw Error(ErrorKind::internal, fmt::format("{} bytes for {} tokens", bin_bytes_, tokens_), bin_path().string());
  }
  sync_file(bin_.get(), bin_path());
  bin_.reset();
  const fs::path path = with_suffix(prefix_, ".idx");
  const Descriptor file = create_file(path);
  write_index(file.get(), path);
  sync_file(file.get(), path);
}

void ShardWriter::write_index(int descriptor, const fs::path& path) const {
  BufferedOutput out(descriptor, path);
  out.put_bytes(kMagic, kMagicBytes);
  out.put(kVersion);
  out.put(type_);
  out.put(static_cast<uint64_t>(sequences()));
  out.put(static_cast<uint64_t>(documents() + 1));
  for (int32_t length : lengths_) out.put(length);
  int64_t offset = 0;
  for (int32_t length : lengths_) {
    out.put(offset);
    offset += length * token_bytes(type_);
  }
  out.put(int64_t{0});
  for (int64_t end : document_ends_) out.put(end);
  out.flush();
}

ShardReader::ShardReader(const fs::path& prefix)
    : prefix_(prefix), idx_(with_suffix(prefix, ".idx")), bin_(with_suffix(prefix, ".bin")) {
  parse_index();
}

Error ShardReader::damaged(const std::string& what) const {
  return {ErrorKind::format, what, idx_.path().string()};
}

void ShardReader::parse_index() {
  const std::byte* data = idx_.bytes().data();
  const int64_t size = idx_.size();
  if (size < kHeaderBytes || std::memcmp(data, kMagic, kMagicBytes) != 0) {
    throw damaged(fmt::format("not a Megatron index: {} bytes that do not begin with MMIDIDX", size));
  }
  if (load<uint64_t>(data + 9) != kVersion) {
    throw damaged(fmt::format("Megatron index of version {}; 1 is read", load<uint64_t>(data + 9)));
  }
  const auto code = load<uint8_t>(data + 17);
  if (code == 0 || code > 8 || code == 6 || code == 7)
    throw damaged(fmt::format("token type {} is not for tokens", code));
  type_ = static_cast<TokenType>(code);

  const auto sequences = load<uint64_t>(data + 18), entries = load<uint64_t>(data + 26);
  const auto room = static_cast<uint64_t>(size - kHeaderBytes);
  const bool counts_fit = sequences <= room / 12 && entries <= room / 8 && entries >= 1;
  const uint64_t wanted = counts_fit ? 12 * sequences + 8 * entries : 0;
  if (!counts_fit || (wanted != room && wanted + sequences != room)) {
    throw damaged(fmt::format("damaged Megatron index: {} bytes do not fit {} sequences and {} document entries", size,
                              sequences, entries));
  }
  sequences_ = static_cast<int64_t>(sequences);
  entries_ = static_cast<int64_t>(entries);

  int64_t offset = 0;
  for (int64_t i = 0; i < sequences_; ++i) {
    if (length(i) < 0 || pointer(i) != offset) {
      throw damaged(
          fmt::format("damaged Megatron index: sequence {} has length {} and offset {}; offset {} is expected", i,
                      length(i), pointer(i), offset));
    }
    offset += length(i) * token_bytes(type_);
  }
  if (offset != bin_.size()) {
    throw Error(ErrorKind::format, fmt::format("{} bytes where the index says {}", bin_.size(), offset),
                bin_.path().string());
  }
  for (int64_t k = 0; k < entries_; ++k) {
    const int64_t first = first_sequence(k), lowest = k == 0 ? 0 : first_sequence(k - 1);
    if (first < lowest || first > sequences_ || (k == 0 && first != 0) || (k == entries_ - 1 && first != sequences_)) {
      throw damaged(
          fmt::format("damaged Megatron index: document entry {} is {}, with {} sequences", k, first, sequences_));
    }
  }
}

int32_t ShardReader::length(int64_t sequence) const {
  return load<int32_t>(idx_.bytes().data() + kHeaderBytes + 4 * sequence);
}

int64_t ShardReader::pointer(int64_t sequence) const {
  return load<int64_t>(idx_.bytes().data() + kHeaderBytes + 4 * sequences_ + 8 * sequence);
}

int64_t ShardReader::first_sequence(int64_t document) const {
  return load<int64_t>(idx_.bytes().data() + kHeaderBytes + 12 * sequences_ + 8 * document);
}

int64_t ShardReader::id_at(int64_t index) const {
  const std::byte* at = bin_.bytes().data() + index * token_bytes(type_);
  switch (type_) {
    case TokenType::uint8:
      return load<uint8_t>(at);
    case TokenType::int8:
      return load<int8_t>(at);
    case TokenType::int16:
      return load<int16_t>(at);
    case TokenType::uint16:
      return load<uint16_t>(at);
    case TokenType::int32:
      return load<int32_t>(at);
    case TokenType::int64:
      return load<int64_t>(at);
  }
  return 0;
}

void ShardReader::read_document(int64_t document, std::vector<int64_t>& ids) const {
  for (int64_t s = first_sequence(document); s < first_sequence(document + 1); ++s) {
    const int64_t first = pointer(s) / token_bytes(type_);
    for (int64_t i = 0; i < length(s); ++i) ids.push_back(id_at(first + i));
  }
}

std::optional<ShardReader::Range> ShardReader::id_range() const {
  const std::byte* data = bin_.bytes().data();
  const int64_t count = tokens();
  if (count == 0) return std::nullopt;
  switch (type_) {
    case TokenType::uint8:
      return range_of<uint8_t>(data, count);
    case TokenType::int8:
      return range_of<int8_t>(data, count);
    case TokenType::int16:
      return range_of<int16_t>(data, count);
    case TokenType::uint16:
      return range_of<uint16_t>(data, count);
    case TokenType::int32:
      return range_of<int32_t>(data, count);
    case TokenType::int64:
      return range_of<int64_t>(data, count);
  }
  return std::nullopt;
}

}  // namespace keel
