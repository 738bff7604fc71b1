#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>

#include "keel/base/export.h"
#include "keel/base/files.h"
#include "keel/data/token_dtype.h"

namespace keel {

/// Writes one Megatron shard (megatron_index.h). Bytes go straight to PREFIX.bin; of the index 12 bytes a sequence are
/// kept in memory until finish().
class KEEL_API ShardWriter {
 public:
  /// Error(io).
  ShardWriter(const std::filesystem::path& prefix, TokenDtype type);

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

  /// Brings the tokens to the disk and holds no descriptor until the next append_tokens or rewind. Error(io).
  void suspend();

  /// Writes PREFIX.idx and brings both files to the disk. Once. Error(io); Error(internal) if the bytes appended do not
  /// match the lengths.
  void finish();

  const std::filesystem::path& prefix() const { return prefix_; }
  int64_t tokens() const { return tokens_; }
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t documents() const { return static_cast<int64_t>(document_ends_.size()); }

 private:
  std::filesystem::path bin_path() const;
  int bin();
  void write_index(int descriptor, const std::filesystem::path& path) const;

  std::filesystem::path prefix_;
  TokenDtype type_;
  Descriptor bin_;
  int64_t tokens_ = 0;
  int64_t bin_bytes_ = 0;
  std::deque<int32_t> lengths_;        // deques: growing never doubles the memory
  std::deque<int64_t> document_ends_;  // sequences up to the end of each document
};

}  // namespace keel
