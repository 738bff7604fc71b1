#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizer/byte_source.h"
#include "keel/tokenizer/input_files.h"

namespace keel {

/// A record as it lies in its file: a JSON line or the text of a document, without what ends it.
struct Record {
  std::string_view bytes;
  int64_t line = 0;         ///< counted from 1
  int64_t byte_offset = 0;  ///< of its first byte in the decompressed file
};

/// How a file falls into records: at every line end ("\n" or "\r\n"), at every occurrence of a mark (a line end beside
/// it belongs to the mark), or not at all.
struct RecordRule {
  enum class Kind { lines, mark, whole };
  Kind kind = Kind::lines;
  std::string mark = {};

  /// The end of the record that begins at `begin`; -1 if it does not end in `bytes`.
  int64_t find_end(std::string_view bytes, int64_t begin) const;
  /// The end of the last record that ends in `bytes`, of which the first `searched` bytes hold none; 0 if none does.
  int64_t find_last_end(std::string_view bytes, int64_t searched) const;
};

/// Whole records of one file that follow each other, or the news that a file has ended.
struct RecordBlock {
  enum class Kind {
    records,
    oversized,  ///< one record of more bytes than allowed, which were passed over
    file_end,
    damaged,  ///< the file cannot be read on, or not at all: `damage`
  };
  Kind kind = Kind::records;
  int64_t file = 0;  ///< index in the list of inputs
  DocumentFormat format = DocumentFormat::jsonl;
  std::string bytes = {};
  int64_t line = 1;         ///< of the first byte
  int64_t byte_offset = 0;  ///< of the first byte
  bool file_start = false;  ///< nothing of the file precedes
  const char* compression = "none";
  int64_t bytes_taken = 0;  ///< of the file as it lies on the disk, so far

  // file_end and damaged
  std::string xxh3 = {};  ///< of the file; "" if not all of it was read
  bool is_empty = false;  ///< not a byte of content
  std::string damage = {};
};

/// Goes through the records of a block. (Not for oversized ones.)
class RecordCursor {
 public:
  RecordCursor(const RecordRule& rule, const RecordBlock& block);
  /// The next record; nothing at the end.
  std::optional<Record> next();

 private:
  Record trimmed(std::string_view bytes, int64_t begin) const;

  const RecordRule& rule_;
  const RecordBlock& block_;
  int64_t at_ = 0;
  int64_t line_;
};

struct RecordReaderOptions {
  std::optional<DocumentFormat> format = {};  ///< nothing: detect_format
  RecordRule text_rule = {RecordRule::Kind::whole};
  int64_t max_record_bytes = int64_t{1} << 30;  ///< of a record of jsonl or txt
  int64_t part = 0, parts = 1;                  ///< which share of all input: part of 0 .. parts - 1
};

/// Reads files one after another and hands out blocks of about 256 KiB, larger only for a record that is.
///
/// Shares: the files are laid end to end (by their bytes on the disk) and cut into equal shares. A file that lies in
/// one share belongs to it; within a file that is cut, the cuts are taken in proportion to its decompressed length,
/// which takes one more pass over a compressed file, and a record belongs to the share in which its first byte lies.
class RecordReader {
 public:
  RecordReader(std::vector<InputFile> files, RecordReaderOptions options);
  ~RecordReader();

  /// The next block; nothing after the last file. Error(io), Error(usage), Stopped. A damaged file is a block, after
  /// those of the whole records before the damage.
  std::optional<RecordBlock> next(const std::atomic<bool>* cancelled);

  /// The rule of a format's files.
  const RecordRule& rule(DocumentFormat format) const;

 private:
  struct Range {
    int64_t begin, end;
  };
  Range share_of(int64_t file, const std::atomic<bool>* cancelled) const;
  bool open_next(const std::atomic<bool>* cancelled);
  void read_start();
  void read_more();
  std::optional<RecordBlock> next_of_file();
  RecordBlock new_block(RecordBlock::Kind kind) const;
  RecordBlock cut_block(int64_t end);
  bool trim_to_share(RecordBlock& block);
  RecordBlock pass_over_record();
  void drop_front(int64_t bytes);
  RecordBlock closing_block(RecordBlock::Kind kind, const std::string& damage);

  std::vector<InputFile> files_;
  RecordReaderOptions options_;
  RecordRule lines_;
  int64_t file_ = -1;
  std::unique_ptr<ByteSource> source_;
  Range share_{};
  DocumentFormat format_ = DocumentFormat::jsonl;
  std::string buffer_;     // bytes read and not handed out
  int64_t searched_ = 0;   // bytes of buffer_ known to hold no end of a record
  int64_t offset_ = 0;     // of buffer_[0] in the file
  int64_t line_ = 1;       // of buffer_[0]
  bool ended_ = false;     // the source has no more, or the share ends
  bool read_all_ = false;  // the source has no more
  bool file_start_ = false;
  bool is_empty_ = false;
  std::string damage_;  // why the source gives no more, though it has not ended
};

}  // namespace keel
