#include "keel/data/data_manifest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/base/signals.h"
#include "keel/base/version.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

using OptionalId = std::optional<int64_t> DataManifest::Tokenizer::*;

constexpr std::pair<const char*, OptionalId> kSpecialIds[] = {{"eod_id", &DataManifest::Tokenizer::eod_id},
                                                              {"bos_id", &DataManifest::Tokenizer::bos_id},
                                                              {"unk_id", &DataManifest::Tokenizer::unk_id},
                                                              {"pad_id", &DataManifest::Tokenizer::pad_id}};

/// Members of the document, with errors that say where.
class Reader {
 public:
  explicit Reader(const fs::path& path) : document_(read_json(path, ErrorKind::format)) {}

  const Json& root() const { return document_.root(); }

  /// The value at a pointer; nullptr when absent or null.
  const Json* find(const std::string& pointer) const {
    const nlohmann::json_pointer<std::string> at(pointer);
    if (!root().contains(at) || root().at(at).is_null()) return nullptr;
    return &root().at(at);
  }

  std::string text(const std::string& pointer) const {
    const Json& value = get(pointer);
    if (!value.is_string()) throw error(pointer, fmt::format("{} is not a string", pointer.substr(1)));
    return value.get<std::string>();
  }

  int64_t count(const std::string& pointer) const {
    const Json& value = get(pointer);
    if (!value.is_number_integer() || value < 0 || value > kMaxCount) {
      throw error(pointer, fmt::format("{} is not a count", pointer.substr(1)));
    }
    return value.get<int64_t>();
  }

  std::optional<int64_t> find_count(const std::string& pointer) const {
    if (find(pointer) == nullptr) return std::nullopt;
    return count(pointer);
  }

  /// A file name without a folder part.
  std::string file_name(const std::string& pointer) const {
    std::string name = text(pointer);
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      throw error(pointer, fmt::format("{} '{}' is not a file name", pointer.substr(1), name));
    }
    return name;
  }

  std::string hash(const std::string& pointer, size_t digits) const {
    std::string value = text(pointer);
    if (value.size() != digits || value.find_first_not_of("0123456789abcdef") != std::string::npos) {
      throw error(pointer, fmt::format("{} is not {} hexadecimal digits", pointer.substr(1), digits));
    }
    return value;
  }

  Error error(const std::string& pointer, const std::string& message) const {
    return document_.error(pointer, message);
  }

 private:
  // Sums over shards stay far from overflow: no more shards than bytes of a manifest.
  static constexpr int64_t kMaxCount = int64_t{1} << 62;

  const Json& get(const std::string& pointer) const {
    const Json* value = find(pointer);
    if (value == nullptr) throw document_.error("", fmt::format("{} is missing", pointer.substr(1)));
    return *value;
  }

  JsonDocument document_;
};

DataManifest::File read_file_entry(const Reader& reader, const std::string& at) {
  return {.bytes = reader.count(at + "/bytes"),
          .xxh3 = reader.hash(at + "/xxh3", 16),
          .sha256 = reader.find(at + "/sha256") == nullptr ? "" : reader.hash(at + "/sha256", 64)};
}

DataManifest::Shard read_shard(const Reader& reader, size_t index) {
  const std::string at = fmt::format("/shards/{}", index);
  return {.name = reader.file_name(at + "/name"),
          .tokens = reader.count(at + "/tokens"),
          .documents = reader.count(at + "/documents"),
          .sequences = reader.find_count(at + "/sequences"),
          .bin = read_file_entry(reader, at + "/bin"),
          .idx = read_file_entry(reader, at + "/idx")};
}

void read_shards(const Reader& reader, DataManifest& manifest) {
  const Json* shards = reader.find("/shards");
  if (shards == nullptr || !shards->is_array()) throw reader.error("/shards", "shards is missing or not a list");
  std::set<std::string> names;
  for (size_t i = 0; i < shards->size(); ++i) {
    manifest.shards.push_back(read_shard(reader, i));
    if (!names.insert(manifest.shards.back().name).second) {
      throw reader.error(fmt::format("/shards/{}/name", i),
                         fmt::format("shard '{}' twice", manifest.shards.back().name));
    }
  }
}

DataManifest::Tokenizer read_tokenizer(const Reader& reader) {
  DataManifest::Tokenizer tokenizer{.file = reader.file_name("/tokenizer/file"),
                                    .sha256 = reader.hash("/tokenizer/sha256", 64),
                                    .vocab_size = reader.find_count("/tokenizer/vocab_size")};
  if (reader.find("/tokenizer/type") != nullptr) tokenizer.type = reader.text("/tokenizer/type");
  for (const auto& [name, member] : kSpecialIds) {
    const std::string pointer = std::string("/tokenizer/") + name;
    tokenizer.*member = reader.find_count(pointer);
    if (tokenizer.*member && tokenizer.vocab_size && *(tokenizer.*member) >= *tokenizer.vocab_size) {
      throw reader.error(pointer, fmt::format("tokenizer/{} {} is outside the vocabulary of {}", name,
                                              *(tokenizer.*member), *tokenizer.vocab_size));
    }
  }
  return tokenizer;
}

void read_dtype(const Reader& reader, DataManifest& manifest) {
  if (reader.find("/dtype") == nullptr) return;
  const std::string name = reader.text("/dtype");
  manifest.dtype = parse_token_dtype(name);
  if (!manifest.dtype) throw reader.error("/dtype", fmt::format("unknown dtype '{}'", name));
  if (!manifest.tokenizer || !manifest.tokenizer->vocab_size) return;
  with_token_type(*manifest.dtype, [&](auto token) {
    if (*manifest.tokenizer->vocab_size - 1 <= static_cast<int64_t>(std::numeric_limits<decltype(token)>::max()))
      return;
    throw reader.error("/dtype",
                       fmt::format("a vocabulary of {} does not fit {}", *manifest.tokenizer->vocab_size, name));
  });
}

std::optional<int64_t> read_total(const Reader& reader, const DataManifest& manifest, const char* name,
                                  int64_t DataManifest::Shard::*member) {
  const std::string pointer = std::string("/") + name;
  const std::optional<int64_t> total = reader.find_count(pointer);
  int64_t sum = 0;
  for (const DataManifest::Shard& shard : manifest.shards) {
    if (__builtin_add_overflow(sum, shard.*member, &sum)) {
      throw reader.error("/shards", fmt::format("more than 2^63 {}", name));
    }
  }
  if (total && *total != sum) {
    throw reader.error(pointer, fmt::format("{} {} where the shards have {}", *total, name, sum));
  }
  return total;
}

Json file_json(const DataManifest::File& file) {
  Json json{{"bytes", file.bytes}, {"xxh3", file.xxh3}};
  if (!file.sha256.empty()) json["sha256"] = file.sha256;
  return json;
}

template <class Value>
void put_optional(Json& object, const char* key, const std::optional<Value>& value) {
  if (value) object[key] = *value;
}

Json tokenizer_json(const DataManifest::Tokenizer& tokenizer) {
  Json json{{"file", tokenizer.file}, {"type", tokenizer.type}, {"sha256", tokenizer.sha256}};
  put_optional(json, "vocab_size", tokenizer.vocab_size);
  for (const auto& [name, member] : kSpecialIds) json[name] = nullptr;
  for (const auto& [name, member] : kSpecialIds) put_optional(json, name, tokenizer.*member);
  return json;
}

Json shard_json(const DataManifest::Shard& shard) {
  Json json{{"name", shard.name}, {"tokens", shard.tokens}, {"documents", shard.documents}};
  put_optional(json, "sequences", shard.sequences);
  json["bin"] = file_json(shard.bin);
  json["idx"] = file_json(shard.idx);
  return json;
}

}  // namespace

DataManifest read_data_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  (void)size_of_file(path);  // of a folder, pipe or device of that name says what it is not
  const Reader reader(path);
  if (!reader.root().is_object()) throw reader.error("", "the manifest is not an object");
  const std::string schema = reader.text("/schema");
  if (schema != kManifestSchema) {
    throw reader.error("/schema", fmt::format("manifest of schema '{}', wanted '{}'", schema, kManifestSchema));
  }
  DataManifest manifest;
  if (reader.find("/tokenizer") != nullptr) manifest.tokenizer = read_tokenizer(reader);
  read_dtype(reader, manifest);
  read_shards(reader, manifest);
  manifest.documents = read_total(reader, manifest, "documents", &DataManifest::Shard::documents);
  manifest.tokens = read_total(reader, manifest, "tokens", &DataManifest::Shard::tokens);
  return manifest;
}

std::string data_manifest_text(const DataManifest& manifest, const Json& details) {
  Json json{{"schema", kManifestSchema}, {"version", version()}};
  if (manifest.dtype) json["dtype"] = to_string(*manifest.dtype);
  if (manifest.tokenizer) json["tokenizer"] = tokenizer_json(*manifest.tokenizer);
  put_optional(json, "documents", manifest.documents);
  put_optional(json, "tokens", manifest.tokens);
  Json& shards = json["shards"] = Json::array();
  for (const DataManifest::Shard& shard : manifest.shards) shards.push_back(shard_json(shard));
  for (const auto& [key, value] : details.items()) json[key] = value;
  return json_text(json, 2);
}

void require_as_recorded(const DataManifest& manifest, const DataManifest::Shard& recorded, const MegatronIndex& index,
                         const MappedFile& bin) {
  const auto differs = [](const fs::path& path, const std::string& found, const std::string& wanted) {
    return Error(ErrorKind::format, fmt::format("{}, the manifest says {}", found, wanted), path.string());
  };
  const auto compare = [&](const char* what, int64_t found, int64_t wanted) {
    if (found != wanted) throw differs(bin.path(), fmt::format("{} {}", found, what), std::to_string(wanted));
  };
  if (manifest.dtype && *manifest.dtype != index.type()) {
    throw differs(bin.path(), fmt::format("{} tokens", to_string(index.type())),
                  std::string(to_string(*manifest.dtype)));
  }
  compare("bytes", bin.size(), recorded.bin.bytes);
  compare("tokens", index.tokens(), recorded.tokens);
  compare("documents", index.documents(), recorded.documents);
  compare("sequences", index.sequences(), recorded.sequences.value_or(index.sequences()));
  if (index.bytes() != recorded.idx.bytes) {
    throw differs(index.path(), fmt::format("{} bytes", index.bytes()), std::to_string(recorded.idx.bytes));
  }
}

// Read, not mapped: mapped pages would count as this process's memory.
DataManifest::File describe_file(const fs::path& path) {
  const Descriptor file = open_regular_file(path);
  std::vector<char> buffer(1 << 20);
  Xxh3 fast;
  Sha256 strong;
  int64_t bytes = 0;
  for (;;) {
    throw_if_stopped();
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error("cannot read", path, errno);
    if (got == 0) break;
    fast.update(buffer.data(), got);
    strong.update(buffer.data(), got);
    bytes += got;
  }
  return {bytes, hex(fast.digest()), hex(strong.digest())};
}

std::vector<std::string> unlisted_shard_files(const fs::path& folder, const DataManifest& manifest) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    const fs::path name = entry->path().filename();
    if (name.extension() != ".bin" && name.extension() != ".idx") continue;
    const bool listed = std::any_of(manifest.shards.begin(), manifest.shards.end(),
                                    [&](const auto& shard) { return shard.name == name.stem(); });
    if (!listed) names.push_back(name.string());
  }
  if (code) throw system_error("cannot read folder", folder, code.value());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace keel
