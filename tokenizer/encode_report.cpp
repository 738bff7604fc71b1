#include "keel/tokenizer/encode_report.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

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

}  // namespace

DataManifest manifest_of(const EncodeResult& result, const Tokenizer& tokenizer, const std::string& tokenizer_file) {
  DataManifest manifest;
  manifest.dtype = result.type;
  manifest.tokenizer = DataManifest::Tokenizer{.file = tokenizer_file,
                                               .type = tokenizer.type(),
                                               .sha256 = tokenizer.sha256(),
                                               .vocab_size = tokenizer.vocab_size(),
                                               .eod_id = tokenizer.eos_id(),
                                               .bos_id = tokenizer.bos_id(),
                                               .unk_id = tokenizer.unk_id(),
                                               .pad_id = tokenizer.pad_id()};
  manifest.documents = result.documents;
  manifest.tokens = result.tokens;
  manifest.shards = result.shards;
  return manifest;
}

Json manifest_details(const EncodeResult& result, const EncodeOptions& options) {
  Json details{{"tool", "keel-tokenize"},
               {"append_eod", options.append_eod},
               {"prepend_bos", options.prepend_bos},
               {"validation_fraction", options.validation_fraction},
               {"documents_in", result.records},
               {"documents_skipped", drops_json(result.drops)}};
  if (options.parts > 1) details["part"] = fmt::format("{}/{}", options.part + 1, options.parts);
  Json& sources = details["sources"] = Json::array();
  for (const SourceInfo& source : result.sources) {
    if (source.read) sources.push_back(source_json(source));
  }
  return details;
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
               {"dtype", to_string(result.type)},
               {"bytes_in", result.text_bytes}};
  set_number(results, "bytes_per_token", static_cast<double>(result.text_bytes) / static_cast<double>(result.tokens));
  set_number(results, "seconds", result.seconds);
  set_number(results, "megabytes_per_second", megabytes / result.seconds);
  Json& files = results["files"] = Json::array();
  for (const DataManifest::Shard& shard : result.shards) {
    files.push_back({{"path", shard.name + ".bin"},
                     {"sha256", shard.bin.sha256},
                     {"documents", shard.documents},
                     {"tokens", shard.tokens},
                     {"index", shard.name + ".idx"},
                     {"index_sha256", shard.idx.sha256}});
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
