#include "keel/tokenizer/token_dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
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

void require_recorded_hashes(const fs::path& path, const DataManifest::File& found,
                             const DataManifest::File& recorded) {
  const auto compare = [&](const char* hash, const std::string& is, const std::string& said) {
    if (said.empty() || is == said) return;
    throw Error(ErrorKind::format, fmt::format("its {} {} is not the manifest's {}", hash, is, said), path.string(),
                "the file or its manifest was changed");
  };
  compare("XXH3", found.xxh3, recorded.xxh3);
  compare("SHA-256", found.sha256, recorded.sha256);
}

}  // namespace

TokenDataset::TokenDataset(const fs::path& path) : path_(path) {
  if (!fs::is_directory(path)) {
    const fs::path prefix = shard_prefix(path);
    if (!fs::exists(prefix.string() + ".idx")) {
      throw Error(ErrorKind::io, "no data set", path.string(),
                  "a folder of keel-tokenize or a PREFIX of .bin and .idx is wanted");
    }
    shards_.emplace_back(prefix);
    return;
  }
  if (!fs::exists(path / kManifestName)) {
    for (const fs::path& prefix : prefixes_in(path)) shards_.emplace_back(prefix);
    return;
  }
  manifest_ = read_data_manifest(path);
  for (const DataManifest::Shard& recorded : manifest_->shards) {
    const ShardReader& shard = shards_.emplace_back(path / recorded.name);
    require_as_recorded(*manifest_, recorded, shard.index(), shard.bin());
  }
}

std::optional<fs::path> TokenDataset::tokenizer_file() const {
  if (manifest_ && manifest_->tokenizer) return path_ / manifest_->tokenizer->file;
  const fs::path folder = fs::is_directory(path_) ? path_ : path_.parent_path();
  if (fs::exists(folder / "tokenizer.model")) return folder / "tokenizer.model";
  return std::nullopt;
}

std::vector<std::string> TokenDataset::unlisted_files() const {
  return manifest_ ? unlisted_shard_files(path_, *manifest_) : std::vector<std::string>{};
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

void TokenDataset::verify_tokenizer() const {
  const DataManifest::Tokenizer& recorded = *manifest_->tokenizer;
  const fs::path file = path_ / recorded.file;
  if (sha256_of_file(file) != recorded.sha256) {
    throw Error(ErrorKind::format, "not the tokenizer of the manifest: its SHA-256 differs", file.string());
  }
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(file);
  const auto compare = [&](const char* what, std::optional<int64_t> found, std::optional<int64_t> said) {
    if (found == said) return;
    const auto text = [](const std::optional<int64_t>& value) { return value ? std::to_string(*value) : "none"; };
    throw Error(ErrorKind::format, fmt::format("its {} is {}, the manifest says {}", what, text(found), text(said)),
                file.string());
  };
  compare("vocab_size", tokenizer->vocab_size(), recorded.vocab_size.value_or(tokenizer->vocab_size()));
  compare("eod_id", tokenizer->eos_id(), recorded.eod_id);
  compare("bos_id", tokenizer->bos_id(), recorded.bos_id);
  compare("unk_id", tokenizer->unk_id(), recorded.unk_id);
  compare("pad_id", tokenizer->pad_id(), recorded.pad_id);
}

TokenDataset::ShardCheck TokenDataset::verify_shard(size_t i) const {
  const ShardReader& shard = shards_[i];
  const fs::path &bin_path = shard.bin().path(), &idx_path = shard.index().path();
  const DataManifest::File bin = describe_file(bin_path), idx = describe_file(idx_path);
  std::optional<int64_t> vocab;
  if (manifest_) {
    require_recorded_hashes(bin_path, bin, manifest_->shards[i].bin);
    require_recorded_hashes(idx_path, idx, manifest_->shards[i].idx);
    if (manifest_->tokenizer) vocab = manifest_->tokenizer->vocab_size;
  }
  const std::optional<ShardReader::Range> ids = shard.id_range();
  if (ids && (ids->smallest < 0 || (vocab && ids->largest >= *vocab))) {
    throw Error(ErrorKind::format,
                fmt::format("token id {} outside the vocabulary", ids->smallest < 0 ? ids->smallest : ids->largest),
                bin_path.string());
  }
  return {bin.xxh3, idx.xxh3, ids};
}

std::vector<TokenDataset::ShardCheck> TokenDataset::verify(Progress& progress) const {
  if (manifest_ && manifest_->tokenizer) verify_tokenizer();
  std::vector<ShardCheck> checks;
  progress.start("verify", tokens(), "tokens");
  int64_t done = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    checks.push_back(verify_shard(i));
    progress.update(done += shards_[i].tokens());
  }
  progress.finish();
  return checks;
}

Json TokenDataset::info_results(const std::optional<std::vector<ShardCheck>>& checks) const {
  const auto tokenizer = manifest_ ? manifest_->tokenizer : std::nullopt;
  const auto number = [](const std::optional<int64_t>& value) { return value ? Json(*value) : Json(nullptr); };
  Json results{{"path", path_.string()},
               {"documents", documents()},
               {"sequences", sequences()},
               {"tokens", tokens()},
               {"dtype", shards_.empty() ? Json(nullptr) : Json(to_string(shards_.front().type()))},
               {"vocab_size", tokenizer ? number(tokenizer->vocab_size) : Json(nullptr)},
               {"eod_id", tokenizer ? number(tokenizer->eod_id) : Json(nullptr)},
               {"tokenizer_sha256", tokenizer ? Json(tokenizer->sha256) : Json(nullptr)},
               {"verified", checks.has_value()}};
  Json& shards = results["shards"] = Json::array();
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardReader& shard = shards_[i];
    Json entry{{"name", shard.prefix().filename().string()},
               {"documents", shard.documents()},
               {"sequences", shard.sequences()},
               {"tokens", shard.tokens()},
               {"dtype", to_string(shard.type())},
               {"bin_bytes", shard.bin().size()},
               {"idx_bytes", shard.index().bytes()}};
    if (checks || manifest_) {
      entry["bin_xxh3"] = checks ? (*checks)[i].bin_xxh3 : manifest_->shards[i].bin.xxh3;
      entry["idx_xxh3"] = checks ? (*checks)[i].idx_xxh3 : manifest_->shards[i].idx.xxh3;
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
