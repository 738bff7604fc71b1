#include "keel/train/data_identity.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/base/signals.h"

namespace keel {
namespace {

constexpr int64_t kWholeBytes = int64_t{1} << 30;
constexpr int64_t kBlocks = 64, kBlockBytes = int64_t{64} << 10;

/// Bytes [begin, begin + count) of a file into the hash; fewer if the file ends.
void add_range(int descriptor, const std::string& path, int64_t begin, int64_t count, Xxh3& hash) {
  std::vector<char> buffer(static_cast<size_t>(std::min(count, int64_t{1} << 20)));
  while (count > 0) {
    throw_if_stopped();
    const auto wanted = static_cast<size_t>(std::min(count, static_cast<int64_t>(buffer.size())));
    const ssize_t got = ::pread(descriptor, buffer.data(), wanted, begin);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error("cannot read", path, errno);
    if (got == 0) return;
    hash.update(buffer.data(), static_cast<size_t>(got));
    begin += got;
    count -= got;
  }
}

std::string hash_of(const std::string& path, bool whole) {
  const int64_t bytes = size_of_file(path);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw system_error("cannot read", path, errno);
  Xxh3 hash;
  if (whole || bytes <= kBlocks * kBlockBytes) {
    add_range(file.get(), path, 0, bytes, hash);
  } else {
    for (int64_t i = 0; i < kBlocks - 1; ++i) {
      add_range(file.get(), path, (bytes - kBlockBytes) / (kBlocks - 1) * i, kBlockBytes, hash);
    }
    add_range(file.get(), path, bytes - kBlockBytes, kBlockBytes, hash);
  }
  return hex(hash.digest());
}

/// The files of a shard that decide what is trained, with their names in its entry.
std::vector<std::pair<const char*, std::string>> files_of(const TokenShard& shard, bool with_mask) {
  std::vector<std::pair<const char*, std::string>> files{{"xxh3", shard.path}};
  if (!shard.index_path.empty()) files.emplace_back("index_xxh3", shard.index_path);
  if (with_mask && !shard.mask_path.empty()) files.emplace_back("mask_xxh3", shard.mask_path);
  return files;
}

std::vector<const Json*> shards_of(const Json& data, const char* split) {
  std::vector<const Json*> list;
  for (const Json& shard : data) {
    if (shard.is_object() && shard.value("split", Json()) == split) list.push_back(&shard);
  }
  return list;
}

void require_same_shard(const Json& before, const Json& now) {
  const std::filesystem::path path = now["path"].get<std::string>();
  const auto compare = [&](const char* key, const char* what, const char* extension) {
    const Json a = before.value(key, Json()), b = now.value(key, Json());
    if (a == b) return;
    const auto file = *extension == 0 ? path : std::filesystem::path(path).replace_extension(extension);
    throw Error(ErrorKind::format,
                fmt::format("the data is not what the run had: {} {} before, {} now", what, json_text(a), json_text(b)),
                file.string(), "a run goes on with its own data");
  };
  compare("tokens", "tokens", "");
  compare("bytes", "bytes", "");
  if (before.value("hashed", Json()) != now["hashed"]) return;
  compare("xxh3", "XXH3", "");
  compare("index_xxh3", "XXH3", ".idx");
  compare("mask_xxh3", "XXH3", ".mask");
}

}  // namespace

Json data_identity(const RunSetup& setup) {
  const bool with_mask = setup.settings.data.loss_mask;
  std::vector<std::pair<const char*, const TokenShard*>> shards;
  const auto add = [&](const char* split, const TokenStream& stream) {
    for (const TokenShard& shard : stream.shards()) shards.emplace_back(split, &shard);
  };
  for (int64_t i = 0; i < setup.train->sources(); ++i) add("train", setup.train->stream(i));
  if (setup.validation) add("val", setup.validation->stream(0));
  int64_t total = 0;
  for (const auto& [split, shard] : shards) {
    for (const auto& [key, path] : files_of(*shard, with_mask)) total += size_of_file(path);
  }
  const bool whole = total <= kWholeBytes;
  Json data = Json::array();
  for (const auto& [split, shard] : shards) {
    Json entry{{"split", split}, {"path", shard->path}, {"bytes", shard->bytes}, {"tokens", shard->tokens}};
    entry["hashed"] = whole ? "whole" : "sample";
    for (const auto& [key, path] : files_of(*shard, with_mask)) entry[key] = hash_of(path, whole);
    data.push_back(std::move(entry));
  }
  return data;
}

void require_same_data(const Json& before, const Json& now) {
  for (const char* split : {"train", "val"}) {
    const std::vector<const Json*> old_shards = shards_of(before, split), new_shards = shards_of(now, split);
    if (old_shards.size() != new_shards.size()) {
      throw Error(
          ErrorKind::format,
          fmt::format("the run had {} {} shards, the data has {} now", old_shards.size(), split, new_shards.size()),
          new_shards.empty() ? "" : (*new_shards.front())["path"].get<std::string>());
    }
    for (size_t i = 0; i < old_shards.size(); ++i) require_same_shard(*old_shards[i], *new_shards[i]);
  }
}

}  // namespace keel
