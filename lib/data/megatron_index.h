#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "keel/base/mapped_file.h"
#include "keel/data/token_shards.h"

namespace keel::detail {

/// A Megatron .idx file (formats.md 1.1), memory-mapped and checked whole: magic, version, dtype, exact size, lengths,
/// pointers without overlap or hole, document array ascending from 0 to the number of sequences.
class MegatronIndex {
 public:
  MegatronIndex() = default;
  /// Throws Error(io) or Error(format) that says what was found and wanted.
  explicit MegatronIndex(const std::string& path);

  TokenDtype type() const { return type_; }
  int64_t bytes() const { return file_.size(); }
  /// Sum of the sequence lengths.
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return entries_ - 1; }
  /// Offset in tokens of document k's first token, 0 <= k <= documents(); tokens() for k = documents().
  int64_t document_start(int64_t k) const;
  /// The first k with document_start(k) >= token.
  int64_t first_document_from(int64_t token) const;
  /// The document that holds that token.
  int64_t document_of(int64_t token) const;

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

}  // namespace keel::detail
