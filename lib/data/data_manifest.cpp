#include "data_manifest.h"

#include <filesystem>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/json.h"

namespace keel::detail {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) : document_(read_json(path, ErrorKind::format)) {}

  const Json& root() const { return document_.root(); }

  /// The value at a pointer; nullptr when absent or null.
  const Json* find(const std::string& pointer) const {
    const nlohmann::json_pointer<std::string> at(pointer);
    if (!root().contains(at) || root().at(at).is_null()) return nullptr;
    return &root().at(at);
  }

  std::string text(const std::string& pointer) const {
    const Json& value = get(pointer);
    if (!value.is_string()) throw document_.error(pointer, fmt::format("{} is not a string", pointer.substr(1)));
    return value.get<std::string>();
  }

  int64_t count(const std::string& pointer) const {
    const Json& value = get(pointer);
    if (!value.is_number_integer() || value < 0 || value > kMaxCount) {
      throw document_.error(pointer, fmt::format("{} is not a count", pointer.substr(1)));
    }
    return value.get<int64_t>();
  }

  /// A file name without a folder part.
  std::string file_name(const std::string& pointer) const {
    std::string name = text(pointer);
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      throw document_.error(pointer, fmt::format("{} '{}' is not a file name", pointer.substr(1), name));
    }
    return name;
  }

  std::string hash(const std::string& pointer, size_t digits) const {
    std::string value = text(pointer);
    if (value.size() != digits || value.find_first_not_of("0123456789abcdef") != std::string::npos) {
      throw document_.error(pointer, fmt::format("{} is not {} hexadecimal digits", pointer.substr(1), digits));
    }
    return value;
  }

  Error error(const std::string& pointer, const std::string& message) const {
    return document_.error(pointer, message);
  }

 private:
  static constexpr int64_t kMaxCount = int64_t{1} << 62;

  const Json& get(const std::string& pointer) const {
    const Json* value = find(pointer);
    if (value == nullptr) throw document_.error("", fmt::format("{} is missing", pointer.substr(1)));
    return *value;
  }

  JsonDocument document_;
};

DataManifest::Shard read_shard(const Reader& reader, size_t index) {
  const std::string at = fmt::format("/shards/{}", index);
  return {.name = reader.file_name(at + "/name"),
          .tokens = reader.count(at + "/tokens"),
          .documents = reader.count(at + "/documents"),
          .bin_bytes = reader.count(at + "/bin/bytes"),
          .idx_bytes = reader.count(at + "/idx/bytes"),
          .bin_xxh3 = reader.hash(at + "/bin/xxh3", 16),
          .idx_xxh3 = reader.hash(at + "/idx/xxh3", 16)};
}

}  // namespace

DataManifest read_data_manifest(const std::string& folder) {
  const Reader reader((std::filesystem::path(folder) / "manifest.json").string());
  if (!reader.root().is_object()) throw reader.error("", "the manifest is not an object");
  const std::string schema = reader.text("/schema");
  if (schema != "keel.tokens/1") {
    throw reader.error("/schema", fmt::format("manifest of schema '{}', wanted 'keel.tokens/1'", schema));
  }
  DataManifest manifest;
  if (reader.find("/tokenizer") != nullptr) {
    manifest.tokenizer_file = reader.file_name("/tokenizer/file");
    manifest.tokenizer_sha256 = reader.hash("/tokenizer/sha256", 64);
    if (reader.find("/tokenizer/vocab_size") != nullptr) manifest.vocab_size = reader.count("/tokenizer/vocab_size");
    if (reader.find("/tokenizer/eod_id") != nullptr) manifest.eod_id = reader.count("/tokenizer/eod_id");
  }
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
  return manifest;
}

}  // namespace keel::detail
