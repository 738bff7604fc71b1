#include "keel/tokenizer/text_commands.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/quantity.h"
#include "keel/base/signals.h"
#include "keel/tokenizer/byte_source.h"
#include "keel/tokenizer/counted.h"
#include "keel/tokenizer/utf8_repair.h"

namespace keel {
namespace {

constexpr int64_t kReadBytes = 64 << 10;

std::string drops_text(const DropCounts& drops) {
  std::string text;
  for (int i = 0; i < kDropReasons; ++i) {
    const auto reason = static_cast<DropReason>(i);
    if (drops[reason] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", drop_reason_name(reason), drops[reason]);
  }
  return text;
}

std::string account(const std::string& what, int64_t read, int64_t written, const DropCounts& drops) {
  const std::string reasons = drops_text(drops);
  return fmt::format("{}: {} read = {} written + {} dropped{}", what, counted(read, "document"), written, drops.total(),
                     reasons.empty() ? "" : " (" + reasons + ")");
}

/// Encodes texts of one input, with errors that say which.
class IdsPrinter {
 public:
  IdsPrinter(const Tokenizer& tokenizer, const IdsOptions& options)
      : tokenizer_(tokenizer), options_(options), encoder_(tokenizer.make_encoder()) {}

  void append_line(std::string_view text, std::string& line) {
    ids_.clear();
    if (options_.add_special && puts_bos()) ids_.push_back(*tokenizer_.bos_id());
    encoder_->encode(text, ids_, options_.special);
    if (options_.add_special && tokenizer_.adds_eos()) ids_.push_back(*tokenizer_.eos_id());
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (i > 0) line.push_back(' ');
      line += options_.pieces ? tokenizer_.piece(ids_[i]) : std::to_string(ids_[i]);
    }
    line.push_back('\n');
  }

 private:
  bool puts_bos() const {
    const bool files_are_silent = tokenizer_.type().starts_with("sentencepiece");
    return files_are_silent ? tokenizer_.bos_id().has_value() : tokenizer_.adds_bos();
  }

  const Tokenizer& tokenizer_;
  const IdsOptions& options_;
  std::unique_ptr<TokenEncoder> encoder_;
  std::vector<int32_t> ids_;
};

void require_utf8(std::string_view text, const std::string& where) {
  if (const int64_t at = find_invalid_utf8(text); at >= 0) {
    throw Error(ErrorKind::format,
                fmt::format("invalid UTF-8 byte 0x{:02X} at byte {}", static_cast<unsigned char>(text[at]), at), where);
  }
}

}  // namespace

std::string ids_line(const Tokenizer& tokenizer, const IdsOptions& options, std::string_view text) {
  require_utf8(text, "TEXT");
  std::string line;
  IdsPrinter(tokenizer, options).append_line(text, line);
  line.pop_back();
  return line;
}

void print_ids_of_input(const Tokenizer& tokenizer, const IdsOptions& options, const std::string& path,
                        const TextOutput& output) {
  const std::unique_ptr<ByteSource> source = open_source(path);
  IdsPrinter printer(tokenizer, options);
  std::string buffer, lines;
  size_t searched = 0;
  int64_t line = 0;
  const auto print = [&](std::string_view text) {
    require_utf8(text, options.whole ? source_name(path) : fmt::format("{}:{}", source_name(path), ++line));
    printer.append_line(text, lines);
  };
  for (;;) {
    const size_t size = buffer.size();
    buffer.resize(size + kReadBytes);
    const int64_t got = source->read(buffer.data() + size, kReadBytes);
    buffer.resize(size + got);
    if (got == 0) break;
    if (options.whole) continue;
    size_t begin = 0;
    for (size_t end; (end = buffer.find('\n', std::max(begin, searched))) != std::string::npos; begin = end + 1) {
      throw_if_stopped();
      const bool carriage_return = end > begin && buffer[end - 1] == '\r';
      print(std::string_view(buffer).substr(begin, end - begin - carriage_return));
    }
    buffer.erase(0, begin);
    searched = buffer.size();
    output(lines);
    lines.clear();
  }
  if (options.whole || !buffer.empty()) print(buffer);
  output(lines);
}

DocumentRange parse_document_range(const std::optional<std::string>& text, int64_t documents) {
  if (!text) return {0, documents};
  const size_t colon = text->find(':');
  const auto number = [&](std::string_view part, int64_t absent) {
    if (part.empty() && colon != std::string::npos) return absent;
    const std::optional<int64_t> value = parse_integer(part);
    if (!value || *value < 0)
      throw Error(ErrorKind::usage, "'" + *text + "' names no documents", "--doc", "N or N:M, counted from 0");
    return *value;
  };
  DocumentRange range;
  range.begin = number(std::string_view(*text).substr(0, colon), 0);
  range.end =
      colon == std::string::npos ? range.begin + 1 : number(std::string_view(*text).substr(colon + 1), documents);
  if (range.begin > range.end && colon != std::string::npos && range.begin <= documents) {
    throw Error(ErrorKind::usage, "'" + *text + "' ends before it begins", "--doc",
                "N:M goes up to but not including M");
  }
  if (range.begin > range.end || range.end > documents) {
    throw Error(ErrorKind::usage, fmt::format("document {} is beyond the {} there are", *text, documents), "--doc");
  }
  return range;
}

std::string parse_separator(const std::string& text) {
  constexpr std::string_view kEscapes = "ntr0\\", kMeanings("\n\t\r\0\\", 5);
  std::string separator;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      separator.push_back(text[i]);
      continue;
    }
    const size_t which = ++i < text.size() ? kEscapes.find(text[i]) : std::string_view::npos;
    if (which == std::string_view::npos) {
      throw Error(ErrorKind::usage, "'" + text + "' has a backslash that means nothing", "--separator",
                  "\\n \\t \\r \\0 \\\\ are known");
    }
    separator.push_back(kMeanings[which]);
  }
  return separator;
}

void print_documents(const TokenDataset& data, const Tokenizer& tokenizer, const DocumentRange& range,
                     const DecodeOptions& options, const TextOutput& output) {
  const bool several = range.end - range.begin > 1;
  const std::string after = options.json ? "\n" : options.separator.value_or(several ? "\n" : "");
  const std::unique_ptr<TokenDecoder> decoder = tokenizer.make_decoder();
  std::string text;
  for (int64_t k = range.begin; k < range.end; ++k) {
    throw_if_stopped();
    text.clear();
    for (int64_t id : data.document(k)) {
      if (id < 0 || id >= tokenizer.vocab_size()) {
        throw Error(ErrorKind::format,
                    fmt::format("token id {} outside the vocabulary of {}", id, tokenizer.vocab_size()),
                    fmt::format("{}, document {}", data.path().string(), k));
      }
      decoder->append(static_cast<int32_t>(id), text);
    }
    decoder->finish(text);
    if (options.json) text = json_text({{"document", k}, {"text", text}});
    output(text + after);
  }
}

std::string info_table(const TokenDataset& data, bool verified) {
  std::string table = fmt::format("{:<20} {:>14} {:>16} {:>8}\n", "shard", "documents", "tokens", "dtype");
  const auto row = [&](const std::string& name, int64_t documents, int64_t tokens, std::string_view type) {
    table += fmt::format("{:<20} {:>14} {:>16} {:>8}\n", name, documents, tokens, type);
  };
  for (const ShardReader& shard : data.shards()) {
    row(shard.prefix().filename().string(), shard.documents(), shard.tokens(), to_string(shard.type()));
  }
  row("all", data.documents(), data.tokens(), "");
  if (data.manifest() && data.manifest()->tokenizer) {
    const DataManifest::Tokenizer& tokenizer = *data.manifest()->tokenizer;
    const auto number = [](const std::optional<int64_t>& value) { return value ? std::to_string(*value) : "none"; };
    table += fmt::format("tokenizer {}: {} ids, end of document {}\n", tokenizer.file, number(tokenizer.vocab_size),
                         number(tokenizer.eod_id));
  }
  return table + (verified ? "verified: all hashes and ids are right\n" : "");
}

std::string encode_summary(const EncodeResult& result, const std::string& out) {
  return fmt::format("{}: {}, {} ({}) in {}, {:.2f} bytes of text a token, {:.1f} MB/s of text\n", out,
                     counted(result.documents, "document"), counted(result.tokens, "token"), to_string(result.type),
                     counted(static_cast<int64_t>(result.shards.size()), "shard"),
                     static_cast<double>(result.text_bytes) / static_cast<double>(result.tokens),
                     static_cast<double>(result.text_bytes) / 1e6 / result.seconds);
}

std::vector<std::string> source_lines(const EncodeResult& result) {
  constexpr int64_t kMaxFiles = 20;
  std::vector<std::string> lines;
  int64_t with_drops = 0, read = 0;
  for (const SourceInfo& source : result.sources) {
    read += source.read;
    if (source.drops.total() == 0 || ++with_drops > kMaxFiles || result.sources.size() == 1) continue;
    lines.push_back(account(source_name(source.file.path), source.records, source.documents, source.drops));
  }
  if (with_drops > kMaxFiles)
    lines.push_back(counted(with_drops - kMaxFiles, "more file") + " lost documents: see manifest.json");
  std::string files = counted(read, "file");
  if (result.damaged_files > 0) files += fmt::format(", {} of them damaged and left out", result.damaged_files);
  lines.push_back(account(files, result.records, result.documents, result.drops));
  return lines;
}

}  // namespace keel
