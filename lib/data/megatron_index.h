#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "keel/base/export.h"
#include "keel/base/mapped_file.h"
#include "keel/data/token_dtype.h"

namespace keel {

/// The index of a Megatron-LM indexed data set (formats.md 1.1): PREFIX.bin has the tokens of all sequences one after
/// another, PREFIX.idx
///   9 bytes "MMIDIDX\0\0", u64 version = 1, u8 token type, u64 S sequences, u64 D document entries,
///   i32[S] lengths in tokens, i64[S] byte offsets in .bin, i64[D] first sequence of each document (first 0, last S),
///   and i8[S] modes in multimodal sets. Little-endian, no padding. Document k is sequences doc[k] .. doc[k+1] - 1.
namespace detail {
inline constexpr char kMegatronMagic[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr uint64_t kMegatronVersion = 1;
inline constexpr int64_t kMegatronHeaderBytes = 34;
}  // namespace detail

/// An index, memory-mapped and checked whole on opening: magic, version, type, exact size, lengths, offsets without
/// overlap or hole, document array ascending from 0 to the number of sequences.
class KEEL_API MegatronIndex {
 public:
  MegatronIndex() = default;
  /// Error(io), or Error(format) that says what was found and wanted.
  explicit MegatronIndex(const std::filesystem::path& path);

  TokenDtype type() const { return type_; }
  const std::filesystem::path& path() const { return file_.path(); }
  int64_t bytes() const { return file_.size(); }
  /// Sum of the sequence lengths.
  int64_t tokens() const { return tokens_; }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return entries_ - 1; }
  /// Offset in tokens of document k's first token, 0 <= k <= documents(); tokens() for k = documents().
  int64_t document_start(int64_t k) const;
  /// The first k with document_start(k) >= token.
  int64_t first_document_from(int64_t token) const;
  /// The document that holds that token.
  int64_t document_of(int64_t token) const;

  /// Error(format) naming the .bin unless it has exactly the bytes of the tokens.
  void check_bin(const MappedFile& bin) const;

 private:
  template <class T>
  T load(int64_t offset, int64_t index) const;
  void check_sequences();
  void check_documents() const;
  [[noreturn]] void fail(const std::string& what) const;

  MappedFile file_;
  TokenDtype type_ = TokenDtype::uint16;
  int64_t sequences_ = 0, entries_ = 1, tokens_ = 0;
};

}  // namespace keel
