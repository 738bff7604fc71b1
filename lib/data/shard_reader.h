#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/mapped_file.h"
#include "keel/data/megatron_index.h"

namespace keel {

/// A Megatron shard, mapped for reading document by document. Index and sizes are checked on opening.
class KEEL_API ShardReader {
 public:
  /// PREFIX without .bin and .idx. Error(io) if one of the files is missing, Error(format) naming the file and what is
  /// wrong with it.
  explicit ShardReader(const std::filesystem::path& prefix);

  const std::filesystem::path& prefix() const { return prefix_; }
  const MegatronIndex& index() const { return index_; }
  const MappedFile& bin() const { return bin_; }
  TokenDtype type() const { return index_.type(); }
  int64_t tokens() const { return index_.tokens(); }
  int64_t sequences() const { return index_.sequences(); }
  int64_t documents() const { return index_.documents(); }

  /// Appends the tokens of document k, 0 <= k < documents().
  void read_document(int64_t k, std::vector<int64_t>& ids) const;

  /// The largest and smallest id of the whole shard; nothing if it has no tokens. Stopped after a signal.
  struct Range {
    int64_t smallest, largest;
  };
  std::optional<Range> id_range() const;

 private:
  std::filesystem::path prefix_;
  MegatronIndex index_;
  MappedFile bin_;
};

}  // namespace keel
