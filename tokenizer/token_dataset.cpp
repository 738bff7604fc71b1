#include "keel/tokenizer/token_dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/base/signals.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

// The prefix of a shard named by its prefix, or by one of its files.
fs::path shard_prefix(const fs::path& path) {
  const fs::path extension = path.extension();
  if (extension == ".bin" || extension == ".idx") return path.parent_path() / path.stem();
  return path;
}

std::vector<fs::path> prefixes_in(const fs::path& folder) {
  std::vector<fs::path> prefixes;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".idx") prefixes.push_back(shard_prefix(entry.path()));
  }
  if (prefixes.empty()) throw Error(ErrorKind::io, "no manifest.json and no .idx files in the folder", folder.string());
  std::sort(prefixes.begin(), prefixes.end());
  return prefixes;
}

std::string hash_span(std::span<const std::byte> bytes) {
  constexpr size_t kStep = 4 << 20;
  Xxh3 hash;
  for (size_t at = 0; at < bytes.size(); at += kStep) {
    throw_if_stopped();
    const auto part = bytes.subspan(at, std::min(kStep, bytes.size() - at));
    hash.update(part.data(), part.size());
  }
  return hex(hash.digest());
}

}  // namespace

TokenDataset::TokenDataset(const fs::path& path) : path_(path) {
  if (!fs::is_directory(path)) {
    const fs::path prefix = shard_prefix(path);
    if (!fs::exists(prefix.string() + ".idx")) {
      throw Error(ErrorKind::io, "no data set", path.string(),
                  "a folder of keel-tokenize or a PREFIX of .bin and .idx is wanted");
    }
    open_shard(prefix);
    return;
  }
  if (!fs::exists(path / kManifestName)) {
    for (const fs::path& prefix : prefixes_in(path)) open_shard(prefix);
    return;
  }
  manifest_ = read_manifest(path / kManifestName);
  for (const ShardInfo& shard : manifest_->shards) open_shard(path / shard.name);
  check_against_manifest();
}

void TokenDataset::open_shard(const fs::path& prefix) {
  shards_.emplace_back(prefix);
}

void TokenDataset::check_against_manifest() const {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardReader& found = shards_[i];
    const ShardInfo& wanted = manifest_->shards[i];
    const auto compare = [&](const char* what, int64_t is, int64_t said) {
      if (is == said) return;
      throw Error(ErrorKind::format, fmt::format("{} {} where the manifest says {}", is, what, said),
                  found.prefix().string());
    };
    compare("bytes in .bin", found.bin_bytes(), wanted.bin_bytes);
    compare("bytes in .idx", found.idx_bytes(), wanted.idx_bytes);
    compare("tokens", found.tokens(), wanted.tokens);
    compare("documents", found.documents(), wanted.documents);
  }
}

std::optional<fs::path> TokenDataset::tokenizer_file() const {
  if (manifest_) return path_ / manifest_->tokenizer_file;
  const fs::path folder = fs::is_directory(path_) ? path_ : path_.parent_path();
  if (fs::exists(folder / "tokenizer.model")) return folder / "tokenizer.model";
  return std::nullopt;
}

int64_t TokenDataset::documents() const {
  int64_t total = 0;
  for (const ShardReader& shard : shards_) total += shard.documents();
  return total;
}

int64_t TokenDataset::sequences() const {
  int64_t total = 0;
  for (const ShardReader& shard : shards_) total += shard.sequences();
  return total;
}

int64_t TokenDataset::tokens() const {
  int64_t total = 0;
  for (const ShardReader& shard : shards_) total += shard.tokens();
  return total;
}

std::vector<int64_t> TokenDataset::document(int64_t k) const {
  std::vector<int64_t> ids;
  for (const ShardReader& shard : shards_) {
    if (k < shard.documents()) {
      shard.read_document(k, ids);
      break;
    }
    k -= shard.documents();
  }
  return ids;
}

std::vector<TokenDataset::ShardCheck> TokenDataset::verify(Progress& progress) const {
  std::vector<ShardCheck> checks;
  progress.start("verify", tokens(), "tokens");
  int64_t done = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardReader& shard = shards_[i];
    const std::string name = shard.prefix().string();
    ShardCheck& check = checks.emplace_back();
    check.bin_xxh3 = hash_span(shard.bin().bytes());
    check.idx_xxh3 = hash_span(shard.idx().bytes());
    if (manifest_ && check.bin_xxh3 != manifest_->shards[i].bin_xxh3) {
      throw Error(ErrorKind::format, "damaged tokens: their hash is not that of the manifest", name + ".bin");
    }
    if (manifest_ && check.idx_xxh3 != manifest_->shards[i].idx_xxh3) {
      throw Error(ErrorKind::format, "damaged index: its hash is not that of the manifest", name + ".idx");
    }
    check.ids = shard.id_range();
    if (check.ids && (check.ids->smallest < 0 || (manifest_ && check.ids->largest >= manifest_->vocab_size))) {
      const int64_t worst = check.ids->smallest < 0 ? check.ids->smallest : check.ids->largest;
      throw Error(ErrorKind::format, fmt::format("token id {} outside the vocabulary", worst), name + ".bin");
    }
    progress.update(done += shard.tokens());
  }
  if (manifest_) {
    const fs::path file = path_ / manifest_->tokenizer_file;
    if (sha256_of_file(file) != manifest_->tokenizer_sha256) {
      throw Error(ErrorKind::format, "not the tokenizer of the manifest: its SHA-256 differs", file.string());
    }
  }
  progress.finish();
  return checks;
}

Json TokenDataset::info_results(const std::optional<std::vector<ShardCheck>>& checks) const {
  Json results{{"path", path_.string()},
               {"documents", documents()},
               {"sequences", sequences()},
               {"tokens", tokens()},
               {"dtype", shards_.empty() ? Json(nullptr) : Json(token_type_name(shards_.front().type()))},
               {"vocab_size", manifest_ ? Json(manifest_->vocab_size) : Json(nullptr)},
               {"eod_id", manifest_ && manifest_->eod_id ? Json(*manifest_->eod_id) : Json(nullptr)},
               {"tokenizer_sha256", manifest_ ? Json(manifest_->tokenizer_sha256) : Json(nullptr)},
               {"verified", checks.has_value()}};
  Json& shards = results["shards"] = Json::array();
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardReader& shard = shards_[i];
    Json entry{{"name", shard.prefix().filename().string()},
               {"documents", shard.documents()},
               {"sequences", shard.sequences()},
               {"tokens", shard.tokens()},
               {"dtype", token_type_name(shard.type())},
               {"bin_bytes", shard.bin_bytes()},
               {"idx_bytes", shard.idx_bytes()}};
    if (checks || manifest_) {
      entry["bin_xxh3"] = checks ? (*checks)[i].bin_xxh3 : manifest_->shards[i].bin_xxh3;
      entry["idx_xxh3"] = checks ? (*checks)[i].idx_xxh3 : manifest_->shards[i].idx_xxh3;
    }
    if (checks && (*checks)[i].ids) {
      entry["smallest_id"] = (*checks)[i].ids->smallest;
      entry["largest_id"] = (*checks)[i].ids->largest;
    }
    shards.push_back(std::move(entry));
  }
  return results;
}

}  // namespace keel
