#include "keel/tokenizer/encode.h"

#include <fmt/core.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/version.h"
#include "keel/tokenizer/block_collector.h"
#include "keel/tokenizer/byte_source.h"
#include "keel/tokenizer/ordered_pipeline.h"

namespace keel {
namespace {

constexpr int64_t kMaxBytesUnderWay = int64_t{64} << 20;
constexpr int64_t kBlockOverhead = 64 << 10;  // so that the news of many empty files do not pile up either

TokenType checked_type(const Tokenizer& tokenizer, const EncodeOptions& options) {
  const TokenType type = options.type.value_or(token_type_for(tokenizer.largest_id()));
  if (type == TokenType::uint16 && tokenizer.largest_id() > std::numeric_limits<uint16_t>::max()) {
    throw Error(ErrorKind::config, fmt::format("token ids up to {} do not fit uint16", tokenizer.largest_id()),
                "--dtype", "use int32 or auto");
  }
  return type;
}

void check_special_tokens(const Tokenizer& tokenizer, const EncodeOptions& options) {
  if (options.append_eod && !tokenizer.eos_id()) {
    throw Error(ErrorKind::config, "the tokenizer has no end-of-document token", tokenizer.path().string(),
                "use --no-append-eod");
  }
  if (options.prepend_bos && !tokenizer.bos_id()) {
    throw Error(ErrorKind::config, "the tokenizer has no beginning-of-text token", tokenizer.path().string(),
                "leave out --prepend-bos");
  }
}

// A record may have other fields, and escapes that are longer than what they stand for.
int64_t max_record_bytes(const EncodeOptions& options) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  return 3 * std::min(options.documents.max_bytes, kMost) + 4096;
}

BlockEncoderOptions block_options(const EncodeOptions& options, TokenType type) {
  BlockEncoderOptions block;
  block.documents = options.documents;
  block.documents.max_record_bytes = max_record_bytes(options);
  block.append_eod = options.append_eod;
  block.prepend_bos = options.prepend_bos;
  block.special = options.special;
  block.validation_fraction = options.validation_fraction;
  block.max_sequence_tokens = options.split_long;
  block.keep_empty = options.keep_empty;
  block.stop_at_error = !options.skip_errors;
  block.type = type;
  return block;
}

RecordReaderOptions reader_options(const EncodeOptions& options) {
  RecordReaderOptions reader;
  reader.format = options.format;
  reader.text_rule = options.text_rule;
  reader.max_record_bytes = max_record_bytes(options);
  reader.part = options.part;
  reader.parts = options.parts;
  return reader;
}

int64_t total_bytes(const std::vector<InputFile>& inputs) {
  int64_t total = 0;
  for (const InputFile& input : inputs) {
    if (input.bytes == 0 && input.path == "-") return 0;
    total += input.bytes;
  }
  return total;
}

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

}  // namespace

EncodeResult encode_files(const std::vector<InputFile>& inputs, const Tokenizer& tokenizer,
                          const EncodeOptions& options, const std::filesystem::path& folder, Progress& progress) {
  const TokenType type = checked_type(tokenizer, options);
  check_special_tokens(tokenizer, options);
  const Stopwatch clock;
  RecordReader reader(inputs, reader_options(options));
  BlockCollector collector(inputs, options, type, folder, progress);
  OrderedPipeline<RecordBlock, EncodedBlock> pipeline(options.workers, kMaxBytesUnderWay);
  progress.start("encode", total_bytes(inputs), "bytes");
  pipeline.run(
      [&]() -> std::optional<std::pair<RecordBlock, int64_t>> {
        std::optional<RecordBlock> block = reader.next(&pipeline.cancelled());
        if (!block) return std::nullopt;
        const int64_t bytes = static_cast<int64_t>(block->bytes.size()) + kBlockOverhead;
        return std::pair(std::move(*block), bytes);
      },
      [&] {
        auto encoder = std::make_shared<BlockEncoder>(tokenizer, block_options(options, type), options.text_rule);
        return [encoder](RecordBlock block) { return encoder->encode(std::move(block)); };
      },
      [&](const EncodedBlock& block) { collector.take(block); });
  EncodeResult result = collector.finish();
  progress.finish();
  result.seconds = clock.seconds();
  return result;
}

std::string manifest_text(const EncodeResult& result, const EncodeOptions& options, const Tokenizer& tokenizer,
                          const std::string& tokenizer_file) {
  Json manifest{{"schema", "keel.tokens/1"},
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
