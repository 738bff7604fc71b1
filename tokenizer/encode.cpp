#include "keel/tokenizer/encode.h"

#include <fmt/core.h>

#include <limits>
#include <memory>
#include <utility>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/tokenizer/block_collector.h"
#include "keel/tokenizer/ordered_pipeline.h"

namespace keel {
namespace {

constexpr int64_t kMaxBytesUnderWay = int64_t{64} << 20;
constexpr int64_t kBlockOverhead = 64 << 10;  // so that the news of many empty files do not pile up either

TokenDtype checked_type(const Tokenizer& tokenizer, const EncodeOptions& options) {
  const TokenDtype type = options.type.value_or(token_dtype_for(tokenizer.largest_id()));
  if (type == TokenDtype::uint16 && tokenizer.largest_id() > std::numeric_limits<uint16_t>::max()) {
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

BlockEncoderOptions block_options(const EncodeOptions& options, TokenDtype type) {
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

}  // namespace

EncodeResult encode_files(const std::vector<InputFile>& inputs, const Tokenizer& tokenizer,
                          const EncodeOptions& options, const std::filesystem::path& folder, Progress& progress) {
  const TokenDtype type = checked_type(tokenizer, options);
  check_special_tokens(tokenizer, options);
  const Stopwatch clock;
  RecordReader reader(inputs, reader_options(options));
  BlockCollector collector(inputs, options, type, folder, progress);
  OrderedPipeline<RecordBlock, EncodedBlock> pipeline(options.workers, kMaxBytesUnderWay);
  progress.start("encode", total_bytes(inputs), "file bytes");
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

}  // namespace keel
