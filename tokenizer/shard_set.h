#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "keel/data/data_manifest.h"
#include "keel/data/shard_writer.h"
#include "keel/tokenizer/encoded_block.h"

namespace keel {

/// The shards of one split, written in order: NAME-00000, NAME-00001, ... A shard takes documents until one would bring
/// it above shard_tokens (a document larger than that has a shard of its own). What was appended since the last
/// commit() can be taken back, which is how nothing of a damaged file gets in.
class ShardSet {
 public:
  ShardSet(const std::filesystem::path& folder, const std::string& name, TokenDtype type, int64_t shard_tokens);

  /// The documents of a block that belong to `split`, in order. Error(io).
  void append(const EncodedBlock& block, Split split);
  void commit();
  void roll_back();
  /// Finishes the last shard. A shard without tokens is not left. The files are hashed as they lie on the disk.
  std::vector<DataManifest::Shard> finish();

 private:
  void start_shard();
  void finish_first();

  std::filesystem::path folder_;
  std::string name_;
  TokenDtype type_;
  int64_t shard_tokens_;
  std::deque<ShardWriter> open_;  // the last committed one, and those begun since
  ShardWriter::Mark committed_;   // of open_.front()
  bool first_is_new_ = true;      // open_.front() was begun since the commit
  int64_t started_ = 0;
  std::vector<DataManifest::Shard> finished_;
};

}  // namespace keel
