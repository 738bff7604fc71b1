#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_set>
#include <vector>

#include "keel/base/export.h"
#include "keel/model/flat_batch.h"

namespace keel {

/// Rows of a cache: pages x page_size. Error(memory) above 2^31, where their numbers would leave int32; Error(internal)
/// for pages without room for a token.
KEEL_API int64_t cache_rows(int64_t pages, int64_t page_size);

/// Who owns which pages of a decoder's key-value cache. A page holds page_size tokens of one sequence, or of several
/// that begin with the same tokens; it is free again when the last of them has gone. Bookkeeping on the host: the
/// memory is the decoder's (DecoderOptions::cache_pages), filled by its forward pass.
class KEEL_API KvPages {
 public:
  /// Errors as cache_rows gives them.
  KvPages(int64_t pages, int64_t page_size);

  int64_t page_size() const { return page_size_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

  /// A new sequence without tokens.
  int64_t create();
  /// A new sequence that begins with the first tokens of another: as many of the first `tokens` as fill whole pages
  /// (see length()); the caller runs the rest again.
  int64_t fork(int64_t sequence, int64_t tokens);
  void release(int64_t sequence);

  int64_t length(int64_t sequence) const { return sequences_.at(sequence).length; }
  std::span<const int32_t> pages(int64_t sequence) const { return sequences_.at(sequence).pages; }
  /// Pages that `tokens` more tokens take.
  int64_t pages_wanted(int64_t sequence, int64_t tokens) const;
  /// Makes the sequence longer. False, and nothing changes, if there are too few free pages.
  bool append(int64_t sequence, int64_t tokens);
  /// Row of the cache that token t of the sequence lies in.
  int32_t row(int64_t sequence, int64_t t) const;

 private:
  struct Sequence {
    std::vector<int32_t> pages;
    int64_t length = 0;
  };

  int64_t page_size_, next_ = 0;
  std::vector<int32_t> free_;
  std::vector<int32_t> users_;  // sequences that hold the page
  std::map<int64_t, Sequence> sequences_;
};

/// The next tokens of some sequences, as the one flat batch that the decoder runs. The vectors live on the host.
class KEEL_API CachedBatch {
 public:
  void clear();
  /// Adds the next tokens of a sequence. False, and nothing changes, if the cache has too few free pages.
  /// Error(internal) for no tokens, and for a sequence that the batch has already.
  bool add(KvPages& pages, int64_t sequence, std::span<const int32_t> tokens);

  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t sequences() const { return static_cast<int64_t>(kv_lengths_.size()); }
  /// First row of sequence i in the batch; i = sequences(): one past the last.
  int64_t first_row(int64_t i) const { return cu_seqlens_[i]; }
  /// Views of this object's memory, valid until it changes.
  HostBatch host();

 private:
  std::vector<int32_t> tokens_, positions_, cache_rows_, kv_lengths_, page_table_;
  std::vector<int32_t> cu_seqlens_{0};
  std::vector<std::vector<int32_t>> pages_;
  std::unordered_set<int64_t> added_;
};

}  // namespace keel
