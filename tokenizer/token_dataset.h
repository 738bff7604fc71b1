#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/base/progress.h"
#include "keel/data/data_manifest.h"
#include "keel/data/shard_reader.h"

namespace keel {

/// A tokenised data set opened for reading: the output folder of keel-tokenize, another folder of .bin and .idx files,
/// or one shard (its prefix, or either of its files).
class KEEL_API TokenDataset {
 public:
  /// Shards are those of the manifest, or of a folder without one all in order of their names. Every index is checked
  /// (ShardReader), and sizes, counts and dtype against the manifest. Error(io), Error(format).
  explicit TokenDataset(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<ShardReader>& shards() const { return shards_; }
  const std::optional<DataManifest>& manifest() const { return manifest_; }
  /// The tokenizer file beside the shards, if there is one.
  std::optional<std::filesystem::path> tokenizer_file() const;
  /// .bin and .idx files in the folder that its manifest does not list.
  std::vector<std::string> unlisted_files() const;

  int64_t documents() const;
  int64_t sequences() const;
  int64_t tokens() const;

  /// The tokens of document k of all shards, 0 <= k < documents().
  std::vector<int64_t> document(int64_t k) const;

  /// Reads everything: the tokenizer's hash, vocabulary and special ids, the shards' hashes against the manifest, ids
  /// against the vocabulary. Returns what info_results() needs of each shard. Error(format) names the first file that
  /// is wrong, Error(io) one that is missing.
  struct ShardCheck {
    std::string bin_xxh3, idx_xxh3;
    std::optional<ShardReader::Range> ids;
  };
  std::vector<ShardCheck> verify(Progress& progress) const;

  /// `results` of the report keel.tokenize.info/1; with the checks of verify() if it ran.
  Json info_results(const std::optional<std::vector<ShardCheck>>& checks) const;

 private:
  void verify_tokenizer() const;
  ShardCheck verify_shard(size_t i) const;

  std::filesystem::path path_;
  std::optional<DataManifest> manifest_;
  std::vector<ShardReader> shards_;
};

}  // namespace keel
