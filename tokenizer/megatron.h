#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/files.h"
#include "keel/base/mapped_file.h"

/// Megatron-LM indexed data sets: PREFIX.bin, the tokens of all sequences one after another, and PREFIX.idx:
///   9 bytes "MMIDIDX\0\0", u64 version = 1, u8 token type, u64 S sequences, u64 D document entries,
///   i32[S] lengths in tokens, i64[S] byte offsets in .bin, i64[D] first sequence of each document (first 0, last S),
///   and i8[S] modes in multimodal sets. Little-endian, no padding. Document k is sequences doc[k] .. doc[k+1] - 1.
namespace keel {

enum class TokenType : uint8_t { uint8 = 1, int8 = 2, int16 = 3, int32 = 4, int64 = 5, uint16 = 8 };

KEEL_API int64_t token_bytes(TokenType type);
/// "uint16".
KEEL_API const char* token_type_name(TokenType type);
/// The narrowest of uint16 and int32 that holds every id up to the largest.
KEEL_API TokenType token_type_for(int64_t largest_id);

/// Writes one shard. Bytes go straight to PREFIX.bin; of the index 12 bytes a sequence are kept in memory until
/// finish().
class KEEL_API ShardWriter {
 public:
  /// Error(io).
  ShardWriter(const std::filesystem::path& prefix, TokenType type);

  /// A document of sequences of these lengths (tokens; none for an empty document). The bytes of all of them follow by
  /// append_tokens in the same order. Error(format) above 2^31 - 1 tokens a sequence.
  void append_document(const int64_t* lengths, int64_t sequences);
  void append_tokens(const void* data, int64_t bytes);

  /// How far the shard has come, to go back to.
  struct Mark {
    int64_t tokens = 0, sequences = 0, documents = 0;
  };
  Mark mark() const { return {tokens(), sequences(), documents()}; }
  /// Drops everything after the mark. Error(io).
  void rewind(const Mark& mark);

  /// Writes PREFIX.idx and brings both files to the disk. Once. Error(io); Error(internal) if the bytes appended do not
  /// match the lengths.
  void finish();

  const std::filesystem::path& prefix() const { return prefix_; }
  int64_t tokens() const { return tokens_; }
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t documents() const { return static_cast<int64_t>(document_ends_.size()); }

 private:
  std::filesystem::path bin_path() const;
  void write_index(int descriptor, const std::filesystem::path& path) const;

  std::filesystem::path prefix_;
  TokenType type_;
  Descriptor bin_;
  int64_t tokens_ = 0;
  int64_t bin_bytes_ = 0;
  std::deque<int32_t> lengths_;        // deques: growing never doubles the memory
  std::deque<int64_t> document_ends_;  // sequences up to the end of each document
};

/// A shard, mapped for reading. Everything is checked on opening: sizes, order and bounds of all three arrays.
class KEEL_API ShardReader {
 public:
  /// PREFIX without .bin and .idx. Error(io) if one of the files is missing, Error(format) naming the file and what is
  /// wrong with it.
  explicit ShardReader(const std::filesystem::path& prefix);

  const std::filesystem::path& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  int64_t tokens() const { return bin_.size() / token_bytes(type_); }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return entries_ - 1; }
  int64_t bin_bytes() const { return bin_.size(); }
  int64_t idx_bytes() const { return idx_.size(); }
  /// The files as they are.
  const MappedFile& bin() const { return bin_; }
  const MappedFile& idx() const { return idx_; }

  /// Sequences of document k: [first_sequence(k), first_sequence(k + 1)). 0 <= k <= documents().
  int64_t first_sequence(int64_t document) const;
  /// Appends the tokens of document k, 0 <= k < documents().
  void read_document(int64_t document, std::vector<int64_t>& ids) const;
  /// The largest and smallest id of the whole shard; nothing if it has no tokens.
  struct Range {
    int64_t smallest, largest;
  };
  std::optional<Range> id_range() const;

 private:
  void parse_index();
  Error damaged(const std::string& what) const;
  int64_t pointer(int64_t sequence) const;
  int32_t length(int64_t sequence) const;
  int64_t id_at(int64_t index) const;

  std::filesystem::path prefix_;
  MappedFile idx_;
  MappedFile bin_;
  TokenType type_ = TokenType::uint16;
  int64_t sequences_ = 0;
  int64_t entries_ = 0;
};

}  // namespace keel
