#include "keel/tokenizer/shard_set.h"

#include <fmt/core.h>

namespace keel {
namespace {

namespace fs = std::filesystem;

void remove_shard(const fs::path& prefix) {
  fs::remove(prefix.string() + ".bin");
  fs::remove(prefix.string() + ".idx");
}

}  // namespace

ShardSet::ShardSet(const fs::path& folder, const std::string& name, TokenDtype type, int64_t shard_tokens)
    : folder_(folder), name_(name), type_(type), shard_tokens_(shard_tokens) {}

void ShardSet::start_shard() {
  if (!open_.empty()) open_.back().suspend();  // however many shards a file makes, one descriptor is open
  open_.emplace_back(folder_ / fmt::format("{}-{:05}", name_, started_++), type_);
}

void ShardSet::append(const EncodedBlock& block, Split split) {
  const std::string& bytes = block.tokens[static_cast<int>(split)];
  size_t sequence = 0, written = 0, pending = 0;
  const auto flush = [&] {
    if (pending > written) open_.back().append_tokens(bytes.data() + written, static_cast<int64_t>(pending - written));
    written = pending;
  };
  for (const EncodedBlock::Document& document : block.documents) {
    if (document.split == split) {
      const bool full = !open_.empty() && open_.back().tokens() > 0 && document.tokens > 0 &&
                        open_.back().tokens() + document.tokens > shard_tokens_;
      if (full) flush();
      if (open_.empty() || full) start_shard();
      open_.back().append_document(block.lengths.data() + sequence, document.sequences);
      pending += document.tokens * token_dtype_bytes(type_);
    }
    sequence += document.sequences;
  }
  flush();
}

void ShardSet::finish_first() {
  open_.front().finish();
  const ShardWriter& shard = open_.front();
  const std::string prefix = shard.prefix().string();
  DataManifest::Shard info{.name = shard.prefix().filename().string(),
                           .tokens = shard.tokens(),
                           .documents = shard.documents(),
                           .sequences = shard.sequences(),
                           .bin = describe_file(prefix + ".bin"),
                           .idx = describe_file(prefix + ".idx")};
  finished_.push_back(std::move(info));
  open_.pop_front();
}

void ShardSet::commit() {
  while (open_.size() > 1) finish_first();
  if (open_.empty()) return;
  committed_ = open_.front().mark();
  first_is_new_ = false;
}

void ShardSet::roll_back() {
  const size_t kept = first_is_new_ ? 0 : 1;
  while (open_.size() > kept) {
    const fs::path prefix = open_.back().prefix();
    open_.pop_back();
    remove_shard(prefix);
    --started_;
  }
  if (kept == 1) open_.front().rewind(committed_);
}

std::vector<DataManifest::Shard> ShardSet::finish() {
  commit();
  if (!open_.empty() && open_.front().tokens() > 0) finish_first();
  if (!open_.empty()) {
    const fs::path prefix = open_.front().prefix();
    open_.clear();
    remove_shard(prefix);
  }
  return std::move(finished_);
}

}  // namespace keel
