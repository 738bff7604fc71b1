#include "keel/tokenizer/record_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "keel/base/error.h"

namespace keel {
namespace {

constexpr int64_t kBlockBytes = 256 << 10;
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// floor(a * b / c)
int64_t scaled(int64_t a, int64_t b, int64_t c) {
  return static_cast<int64_t>(static_cast<__int128>(a) * b / c);
}

int64_t decompressed_bytes(const std::string& path, const std::atomic<bool>* cancelled) {
  const std::unique_ptr<ByteSource> source = open_source(path, cancelled);
  std::string buffer(kBlockBytes, '\0');
  int64_t total = 0;
  while (const int64_t got = source->read(buffer.data(), kBlockBytes)) total += got;
  return total;
}

int64_t count_lines(std::string_view bytes) {
  return std::count(bytes.begin(), bytes.end(), '\n');
}

// Bytes of the line end that `bytes` begins with.
size_t leading_line_end(std::string_view bytes) {
  return bytes.starts_with("\r\n") ? 2 : bytes.starts_with('\n') ? 1 : 0;
}

std::string_view without_line_end(std::string_view bytes) {
  if (!bytes.ends_with('\n')) return bytes;
  bytes.remove_suffix(1);
  if (bytes.ends_with('\r')) bytes.remove_suffix(1);
  return bytes;
}

}  // namespace

int64_t RecordRule::find_end(std::string_view bytes, int64_t begin) const {
  if (kind == Kind::whole) return -1;
  const std::string_view stop = kind == Kind::lines ? std::string_view("\n") : std::string_view(mark);
  const size_t at = bytes.find(stop, begin);
  return at == std::string_view::npos ? -1 : static_cast<int64_t>(at + stop.size());
}

int64_t RecordRule::find_last_end(std::string_view bytes, int64_t searched) const {
  if (kind == Kind::whole) return 0;
  if (kind == Kind::lines) {
    const size_t at = bytes.substr(searched).rfind('\n');
    return at == std::string_view::npos ? 0 : searched + static_cast<int64_t>(at) + 1;
  }
  // From the front, as marks may overlap; a mark may have begun in what was searched.
  int64_t last = 0;
  int64_t from = std::max<int64_t>(0, searched - static_cast<int64_t>(mark.size()) + 1);
  for (int64_t end; (end = find_end(bytes, from)) >= 0; from = end) last = end;
  return last;
}

RecordCursor::RecordCursor(const RecordRule& rule, const RecordBlock& block)
    : rule_(rule), block_(block), line_(block.line) {}

std::optional<Record> RecordCursor::next() {
  const std::string_view bytes = block_.bytes;
  while (at_ < static_cast<int64_t>(bytes.size())) {
    const int64_t begin = at_;
    const int64_t end = rule_.find_end(bytes, begin);
    at_ = end < 0 ? static_cast<int64_t>(bytes.size()) : end;
    Record record{bytes.substr(begin, at_ - begin), line_, block_.byte_offset + begin};
    line_ += count_lines(record.bytes);
    if (rule_.kind == RecordRule::Kind::whole) return record;
    if (rule_.kind == RecordRule::Kind::lines) {
      record.bytes = without_line_end(record.bytes);
      return record;
    }
    if (end >= 0) record.bytes = without_line_end(record.bytes.substr(0, record.bytes.size() - rule_.mark.size()));
    const size_t skipped = begin == 0 && block_.file_start ? 0 : leading_line_end(record.bytes);
    record.bytes.remove_prefix(skipped);
    record.byte_offset += static_cast<int64_t>(skipped);
    record.line += skipped > 0;
    if (end >= 0 || !record.bytes.empty()) return record;  // what follows the last mark may be nothing
  }
  return std::nullopt;
}

RecordReader::RecordReader(std::vector<InputFile> files, RecordReaderOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
  const auto is_stream = [](const InputFile& file) { return file.path == "-"; };
  if (options_.parts > 1 && std::any_of(files_.begin(), files_.end(), is_stream)) {
    throw Error(ErrorKind::usage, "standard input cannot be read in parts", "--part", "give files");
  }
}

RecordReader::~RecordReader() = default;

const RecordRule& RecordReader::rule(DocumentFormat format) const {
  return format == DocumentFormat::jsonl ? lines_ : options_.text_rule;
}

std::optional<RecordBlock> RecordReader::next(const std::atomic<bool>* cancelled) {
  for (;;) {
    try {
      if (source_ == nullptr && !open_next(cancelled)) return std::nullopt;
      if (std::optional<RecordBlock> block = next_of_file()) return block;
      return closing_block(damage_.empty() ? RecordBlock::Kind::file_end : RecordBlock::Kind::damaged, damage_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::format) throw;
      return closing_block(RecordBlock::Kind::damaged, error.what());
    }
  }
}

RecordReader::Range RecordReader::share_of(int64_t file, const std::atomic<bool>* cancelled) const {
  if (options_.parts == 1) return {0, kAll};
  int64_t start = 0, total = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(files_.size()); ++i) {
    if (i == file) start = total;
    total += files_[i].bytes;
  }
  const int64_t size = files_[file].bytes;
  const int64_t begin = scaled(total, options_.part, options_.parts) - start;
  const int64_t end = scaled(total, options_.part + 1, options_.parts) - start;
  if (size == 0) {
    const bool last = options_.part + 1 == options_.parts;
    return begin <= 0 && (0 < end || (last && end == 0)) ? Range{0, kAll} : Range{0, 0};
  }
  if (end <= 0 || begin >= size) return {0, 0};
  if (begin <= 0 && end >= size) return {0, kAll};
  const int64_t length = decompressed_bytes(files_[file].path, cancelled);
  return {begin <= 0 ? 0 : scaled(begin, length, size), end >= size ? kAll : scaled(end, length, size)};
}

// Opens the next file that has a share; false after the last.
bool RecordReader::open_next(const std::atomic<bool>* cancelled) {
  do {
    if (++file_ >= static_cast<int64_t>(files_.size())) return false;
    buffer_.clear();
    searched_ = offset_ = 0;
    line_ = 1;
    damage_.clear();
    ended_ = read_all_ = is_empty_ = false;
    file_start_ = true;
    share_ = share_of(file_, cancelled);
  } while (share_.begin == share_.end);
  source_ = open_source(files_[file_].path, cancelled);
  read_start();
  return true;
}

void RecordReader::read_start() {
  while (!ended_ && static_cast<int64_t>(buffer_.size()) < kBlockBytes) read_more();
  const std::string& path = files_[file_].path;
  refuse_wide_text(path, buffer_);
  if (buffer_.starts_with(kByteOrderMark)) {
    buffer_.erase(0, kByteOrderMark.size());
    offset_ = static_cast<int64_t>(kByteOrderMark.size());
  }
  is_empty_ = buffer_.empty();
  format_ = options_.format ? *options_.format : detect_format(path, buffer_, read_all_);
}

void RecordReader::read_more() {
  const size_t size = buffer_.size();
  buffer_.resize(size + kBlockBytes);
  try {
    const int64_t got = source_->read(buffer_.data() + size, kBlockBytes);
    buffer_.resize(size + got);
    ended_ = read_all_ = got == 0;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::format) throw;
    buffer_.resize(size);
    damage_ = error.what();
    ended_ = true;
  }
}

std::optional<RecordBlock> RecordReader::next_of_file() {
  const RecordRule& rule = this->rule(format_);
  for (;;) {
    const auto size = static_cast<int64_t>(buffer_.size());
    const bool enough = size >= kBlockBytes && size > searched_;
    const bool to_the_end = ended_ && damage_.empty();
    const int64_t end = to_the_end ? size : enough || ended_ ? rule.find_last_end(buffer_, searched_) : 0;
    if (end > 0) {
      RecordBlock block = cut_block(end);
      if (trim_to_share(block)) return block;
      continue;
    }
    if (ended_) return std::nullopt;
    if (enough) searched_ = size;
    if (size > options_.max_record_bytes) {
      const bool mine = offset_ >= share_.begin && offset_ < share_.end;
      RecordBlock block = pass_over_record();
      if (mine) return block;
      continue;
    }
    read_more();
  }
}

// At the beginning of buffer_.
RecordBlock RecordReader::new_block(RecordBlock::Kind kind) const {
  RecordBlock block;
  block.kind = kind;
  block.file = file_;
  block.format = format_;
  block.line = line_;
  block.byte_offset = offset_;
  block.file_start = file_start_;
  if (source_ != nullptr) {
    block.compression = source_->compression();
    block.bytes_taken = source_->bytes_taken();
  }
  return block;
}

RecordBlock RecordReader::cut_block(int64_t end) {
  RecordBlock block = new_block(RecordBlock::Kind::records);
  std::string rest = buffer_.substr(end);
  buffer_.resize(end);
  block.bytes = std::exchange(buffer_, std::move(rest));
  line_ += count_lines(block.bytes);
  offset_ += end;
  searched_ = 0;
  file_start_ = false;
  return block;
}

// Drops the records of the block that begin outside the share; false if none are left.
bool RecordReader::trim_to_share(RecordBlock& block) {
  const int64_t size = static_cast<int64_t>(block.bytes.size());
  if (block.byte_offset >= share_.begin && block.byte_offset + size <= share_.end) return true;
  const RecordRule& rule = this->rule(format_);
  const auto first_from = [&](int64_t offset) {
    int64_t at = 0;
    while (at < size && block.byte_offset + at < offset) {
      const int64_t end = rule.find_end(block.bytes, at);
      at = end < 0 ? size : end;
    }
    return at;
  };
  const int64_t begin = first_from(share_.begin), end = first_from(share_.end);
  if (end < size || block.byte_offset + size >= share_.end) {
    ended_ = true;
    buffer_.clear();
  }
  block.bytes.resize(end);
  block.line += count_lines(std::string_view(block.bytes).substr(0, begin));
  block.bytes.erase(0, begin);
  block.byte_offset += begin;
  block.file_start = block.file_start && begin == 0;
  return !block.bytes.empty();
}

// Reads to the end of the record that buffer_ begins with, without keeping it.
RecordBlock RecordReader::pass_over_record() {
  RecordBlock block = new_block(RecordBlock::Kind::oversized);
  const RecordRule& rule = this->rule(format_);
  const auto kept = static_cast<int64_t>(rule.mark.size());
  int64_t end = -1;
  do {
    drop_front(std::max<int64_t>(0, static_cast<int64_t>(buffer_.size()) - kept));
    read_more();
    end = rule.find_end(buffer_, 0);
  } while (end < 0 && !ended_);
  drop_front(end < 0 ? static_cast<int64_t>(buffer_.size()) : end);
  searched_ = 0;
  file_start_ = false;
  return block;
}

void RecordReader::drop_front(int64_t bytes) {
  line_ += count_lines(std::string_view(buffer_).substr(0, bytes));
  offset_ += bytes;
  buffer_.erase(0, bytes);
}

RecordBlock RecordReader::closing_block(RecordBlock::Kind kind, const std::string& damage) {
  RecordBlock block = new_block(kind);
  block.damage = damage;
  block.is_empty = is_empty_;
  if (source_ != nullptr) {
    if (read_all_) block.xxh3 = source_->xxh3();
    source_.reset();
  }
  return block;
}

}  // namespace keel
