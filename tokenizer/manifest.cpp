#include "keel/tokenizer/manifest.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "keel/base/error.h"
#include "keel/base/version.h"

namespace keel {
namespace {

Json drops_json(const DropCounts& drops) {
  Json object = Json::object();
  for (int i = 0; i < kDropReasons; ++i) {
    const auto reason = static_cast<DropReason>(i);
    if (drops[reason] > 0) object[drop_reason_name(reason)] = drops[reason];
  }
  return object;
}

template <class Id>
Json optional_json(const std::optional<Id>& id) {
  return id ? Json(*id) : Json(nullptr);
}

Json tokenizer_json(const Tokenizer& tokenizer, const std::string& file) {
  return {{"file", file},
          {"type", tokenizer.type()},
          {"sha256", tokenizer.sha256()},
          {"vocab_size", tokenizer.vocab_size()},
          {"eod_id", optional_json(tokenizer.eos_id())},
          {"bos_id", optional_json(tokenizer.bos_id())},
          {"unk_id", optional_json(tokenizer.unk_id())},
          {"pad_id", optional_json(tokenizer.pad_id())}};
}

Json shard_json(const ShardInfo& shard) {
  return {{"name", shard.name},
          {"tokens", shard.tokens},
          {"documents", shard.documents},
          {"sequences", shard.sequences},
          {"bin", {{"bytes", shard.bin_bytes}, {"xxh3", shard.bin_xxh3}, {"sha256", shard.bin_sha256}}},
          {"idx", {{"bytes", shard.idx_bytes}, {"xxh3", shard.idx_xxh3}, {"sha256", shard.idx_sha256}}}};
}

Json source_json(const SourceInfo& source) {
  return {{"path", source.file.path},
          {"bytes", source.file.bytes},
          {"xxh3", source.xxh3.empty() ? Json(nullptr) : Json(source.xxh3)},
          {"format", format_name(source.format)},
          {"compression", source.compression},
          {"documents_in", source.records},
          {"documents_written", source.documents},
          {"documents_skipped", drops_json(source.drops)},
          {"tokens", source.tokens}};
}

/// Members of a JSON document, with errors that say where.
class ManifestParser {
 public:
  explicit ManifestParser(const JsonDocument& document) : document_(document) {}

  Manifest parse() const {
    Manifest manifest;
    const std::string schema = text("/schema");
    if (schema != kManifestSchema) {
      throw document_.error("/schema", fmt::format("a manifest of schema '{}'", schema),
                            fmt::format("{} is read", kManifestSchema));
    }
    manifest.tokenizer_file = text("/tokenizer/file");
    if (manifest.tokenizer_file.find('/') != std::string::npos) {
      throw document_.error("/tokenizer/file", "a file name without folders is wanted");
    }
    manifest.tokenizer_sha256 = text("/tokenizer/sha256");
    manifest.vocab_size = integer("/tokenizer/vocab_size");
    if (find("/tokenizer/eod_id") != nullptr) manifest.eod_id = integer("/tokenizer/eod_id");
    const Json* shards = find("/shards");
    if (shards == nullptr || !shards->is_array()) throw document_.error("/shards", "'shards' must be a list");
    for (size_t i = 0; i < shards->size(); ++i) manifest.shards.push_back(shard(fmt::format("/shards/{}", i)));
    return manifest;
  }

 private:
  ShardInfo shard(const std::string& at) const {
    ShardInfo shard;
    shard.name = text(at + "/name");
    if (shard.name.empty() || shard.name.find('/') != std::string::npos) {
      throw document_.error(at + "/name", "a file name without folders is wanted");
    }
    shard.tokens = integer(at + "/tokens");
    shard.documents = integer(at + "/documents");
    shard.bin_bytes = integer(at + "/bin/bytes");
    shard.idx_bytes = integer(at + "/idx/bytes");
    shard.bin_xxh3 = text(at + "/bin/xxh3");
    shard.idx_xxh3 = text(at + "/idx/xxh3");
    return shard;
  }

  // nullptr for what is absent or null.
  const Json* find(const std::string& pointer) const {
    const Json::json_pointer at(pointer);
    if (!document_.root().contains(at)) return nullptr;
    const Json& value = document_.root().at(at);
    return value.is_null() ? nullptr : &value;
  }

  std::string text(const std::string& pointer) const {
    const Json* value = find(pointer);
    if (value == nullptr || !value->is_string())
      throw document_.error(pointer, fmt::format("'{}' must be a text", pointer));
    return value->get<std::string>();
  }

  int64_t integer(const std::string& pointer) const {
    const Json* value = find(pointer);
    if (value == nullptr || !value->is_number_integer() || *value < 0) {
      throw document_.error(pointer, fmt::format("'{}' must be a whole number, not negative", pointer));
    }
    return value->get<int64_t>();
  }

  const JsonDocument& document_;
};

}  // namespace

std::string manifest_text(const EncodeResult& result, const EncodeOptions& options, const Tokenizer& tokenizer,
                          const std::string& tokenizer_file) {
  Json manifest{{"schema", kManifestSchema},
                {"tool", "keel-tokenize"},
                {"version", version()},
                {"dtype", token_type_name(result.type)},
                {"tokenizer", tokenizer_json(tokenizer, tokenizer_file)},
                {"append_eod", options.append_eod},
                {"prepend_bos", options.prepend_bos},
                {"validation_fraction", options.validation_fraction},
                {"documents", result.documents},
                {"tokens", result.tokens},
                {"documents_in", result.records},
                {"documents_skipped", drops_json(result.drops)}};
  if (options.parts > 1) manifest["part"] = fmt::format("{}/{}", options.part + 1, options.parts);
  Json& shards = manifest["shards"] = Json::array();
  for (const ShardInfo& shard : result.shards) shards.push_back(shard_json(shard));
  Json& sources = manifest["sources"] = Json::array();
  for (const SourceInfo& source : result.sources) {
    if (source.read) sources.push_back(source_json(source));
  }
  return json_text(manifest, 2);
}

Manifest read_manifest(const std::filesystem::path& path) {
  return ManifestParser(read_json(path, ErrorKind::format)).parse();
}

Json encode_results(const EncodeResult& result) {
  const double megabytes = static_cast<double>(result.text_bytes) / 1e6;
  Json results{{"documents_in", result.records},
               {"documents_written", result.documents},
               {"documents_skipped", drops_json(result.drops)},
               {"files_empty", result.empty_files},
               {"files_damaged", result.damaged_files},
               {"replaced_utf8", result.replaced_bytes},
               {"replaced_surrogates", result.replaced_surrogates},
               {"tokens", result.tokens},
               {"dtype", token_type_name(result.type)},
               {"bytes_in", result.text_bytes}};
  set_number(results, "bytes_per_token", static_cast<double>(result.text_bytes) / static_cast<double>(result.tokens));
  set_number(results, "seconds", result.seconds);
  set_number(results, "megabytes_per_second", megabytes / result.seconds);
  Json& files = results["files"] = Json::array();
  for (const ShardInfo& shard : result.shards) {
    files.push_back({{"path", shard.name + ".bin"},
                     {"sha256", shard.bin_sha256},
                     {"documents", shard.documents},
                     {"tokens", shard.tokens},
                     {"index", shard.name + ".idx"},
                     {"index_sha256", shard.idx_sha256}});
  }
  Json& errors = results["errors"] = Json::array();
  for (const InputError& error : result.errors) {
    Json entry{{"path", result.sources[error.file].file.path},
               {"line", error.notice.line},
               {"byte_offset", error.notice.byte_offset},
               {"reason", drop_reason_name(error.notice.reason)},
               {"message", error.notice.message}};
    if (!error.notice.id.empty()) entry["id"] = error.notice.id;
    errors.push_back(std::move(entry));
  }
  return results;
}

}  // namespace keel
