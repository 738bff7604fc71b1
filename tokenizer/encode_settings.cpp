#include "keel/tokenizer/encode_settings.h"

#include <fmt/core.h>

#include <limits>

#include "keel/base/error.h"
#include "keel/base/quantity.h"

namespace keel {
namespace {

/// What of the input becomes a document.
std::vector<ConfigKey> document_keys() {
  return {
      {.path = "format",
       .type = ConfigType::choice,
       .initial = "\"auto\"",
       .choices = {"auto", "jsonl", "txt", "json", "parquet"},
       .help = "What the input is; auto looks at its content. json and parquet are not read by this version."},
      {.path = "documents",
       .type = ConfigType::text,
       .initial = "\"file\"",
       .help = "What a document of txt is: the whole file, a line, or what stands between two occurrences of a MARK."},
      {.path = "text_field",
       .type = ConfigType::text,
       .initial = "\"text\"",
       .help = "Field of the text; a.b leads into objects. An error if the first 1000 records, or all, lack it."},
      {.path = "id_field",
       .type = ConfigType::text,
       .initial = "\"id\"",
       .help = "Field that names a record in error lists."},
      {.path = "text_is_list",
       .type = ConfigType::boolean,
       .initial = "false",
       .help = "The text may be a list of strings: each becomes a sequence of the document."},
      {.path = "where",
       .type = ConfigType::text_list,
       .initial = "[]",
       .help =
           "Keep only records of jsonl whose field compares so: score>=3, lang==en. Several must all hold. An error if "
           "the first 1000 records, or all, lack the field."},
      {.path = "max_document_bytes",
       .type = ConfigType::size,
       .initial = "1073741824",
       .unit = "bytes",
       .minimum = 1,
       .help = "A document whose text is longer is an error."},
      {.path = "invalid_utf8",
       .type = ConfigType::choice,
       .initial = "\"fail\"",
       .choices = {"fail", "replace"},
       .help = "Bytes that are not UTF-8 and half surrogate pairs: an error, or U+FFFD for each."},
      {.path = "on_error",
       .type = ConfigType::choice,
       .initial = "\"stop\"",
       .choices = {"stop", "skip"},
       .help = "At a bad record (not JSON, not UTF-8, another type, too long) or a damaged file stop, or drop and "
               "count it. "
               "A text that is empty, null or missing is dropped and counted either way."},
      {.path = "max_errors",
       .type = ConfigType::text,
       .help = "With skip: stop after more errors than N, or than P% of the records."},
      {.path = "keep_empty",
       .type = ConfigType::boolean,
       .initial = "false",
       .help = "Keep an empty text as a document without a sequence, as Megatron does, instead of dropping it."},
  };
}

/// What of a document is written, and how.
std::vector<ConfigKey> output_keys() {
  return {
      {.path = "append_eod",
       .type = ConfigType::boolean,
       .initial = "true",
       .help = "Put the end-of-document token after each document."},
      {.path = "prepend_bos",
       .type = ConfigType::boolean,
       .initial = "false",
       .help = "Put the beginning-of-text token before each document."},
      {.path = "special_in_text",
       .type = ConfigType::choice,
       .initial = "\"plain\"",
       .choices = {"plain", "parse"},
       .help = "The text of a control token such as </s> in a document: text like any other, or the token."},
      {.path = "split_long",
       .type = ConfigType::amount,
       .unit = "tokens",
       .minimum = 1,
       .maximum = std::numeric_limits<int32_t>::max(),
       .help = "Cut longer documents into sequences of N tokens; they stay one document."},
      {.path = "dtype",
       .type = ConfigType::choice,
       .initial = "\"auto\"",
       .choices = {"auto", "uint16", "int32"},
       .help = "Type of a token; auto takes uint16 if the tokenizer's largest id fits."},
      {.path = "shard_tokens",
       .type = ConfigType::amount,
       .initial = "1000000000",
       .unit = "tokens",
       .minimum = 1,
       .help = "Size of a shard; documents are never cut between shards."},
      {.path = "val_fraction",
       .type = ConfigType::real,
       .initial = "0",
       .minimum = 0,
       .maximum = 1,
       .help = "Share of the documents that goes to val shards, chosen by a hash of the text."},
      {.path = "part",
       .type = ConfigType::text,
       .help = "Take only share I of N of the input, I = 1 .. N; all shares together give each document once."},
      {.path = "workers",
       .type = ConfigType::integer,
       .initial = "0",
       .minimum = 0,
       .maximum = 4096,
       .help = "Threads that encode; 0 is --threads. The files written do not depend on it."},
  };
}

std::string field_of(const Config& config, const char* key) {
  std::string name = config.text(key);
  if (name.empty()) throw config.error(key, "an empty field name");
  return name;
}

std::optional<DocumentFormat> format_of(const Config& config) {
  const std::string format = config.text("format");
  if (format == "auto") return std::nullopt;
  if (format == "jsonl") return DocumentFormat::jsonl;
  if (format == "txt") return DocumentFormat::txt;
  throw config.error("format", "format '" + format + "' is not read by this version", "convert the input to jsonl");
}

RecordRule text_rule_of(const Config& config) {
  const std::string documents = config.text("documents");
  if (documents == "file") return {RecordRule::Kind::whole};
  if (documents == "line") return {RecordRule::Kind::lines};
  if (documents.empty()) throw config.error("documents", "an empty mark", "file, line or the text between documents");
  return {RecordRule::Kind::mark, documents};
}

void resolve_max_errors(const Config& config, EncodeOptions& options) {
  const std::optional<std::string> text = config.find_text("max_errors");
  if (!text) return;
  if (!options.skip_errors)
    throw config.error("max_errors", "a limit for errors without skipping any", "add --on-error skip");
  if (text->ends_with('%')) {
    const std::optional<double> percent = parse_real(text->substr(0, text->size() - 1));
    if (!percent || *percent < 0 || *percent > 100)
      throw config.error("max_errors", "a share between 0% and 100% is wanted");
    options.max_error_fraction = *percent / 100;
  } else {
    options.max_errors = parse_size(*text);
    if (!options.max_errors)
      throw config.error("max_errors", "'" + *text + "' is neither a number nor a share such as 0.1%");
  }
}

void resolve_part(const Config& config, EncodeOptions& options) {
  const std::optional<std::string> text = config.find_text("part");
  if (!text) return;
  const size_t slash = text->find('/');
  const std::optional<int64_t> part = parse_integer(text->substr(0, slash));
  const std::optional<int64_t> parts =
      slash == std::string::npos ? std::nullopt : parse_integer(text->substr(slash + 1));
  if (!part || !parts || *part < 1 || *part > *parts || *parts > 1'000'000) {
    throw config.error("part", "'" + *text + "' is no share of the input", "I/N with I from 1 to N, as in 1/4 .. 4/4");
  }
  options.part = *part - 1;
  options.parts = *parts;
}

}  // namespace

const ConfigSchema& encode_schema() {
  static const ConfigSchema schema([] {
    std::vector<ConfigKey> keys = document_keys();
    for (ConfigKey& key : output_keys()) keys.push_back(std::move(key));
    return keys;
  }());
  return schema;
}

EncodeOptions resolve_encode_options(const Config& config, int cores) {
  EncodeOptions options;
  options.format = format_of(config);
  options.text_rule = text_rule_of(config);
  options.documents.text_field = field_of(config, "text_field");
  options.documents.id_field = field_of(config, "id_field");
  options.documents.text_is_list = config.boolean("text_is_list");
  options.documents.replace_invalid_utf8 = config.text("invalid_utf8") == "replace";
  options.documents.max_bytes = config.integer("max_document_bytes");
  for (const std::string& condition : config.texts("where")) options.documents.conditions.emplace_back(condition);
  if (!options.documents.conditions.empty() && options.format == DocumentFormat::txt) {
    throw config.error("where", "a condition on fields of records, and the format is txt", "it is for jsonl");
  }
  options.append_eod = config.boolean("append_eod");
  options.prepend_bos = config.boolean("prepend_bos");
  options.special = config.text("special_in_text") == "parse" ? SpecialText::parse : SpecialText::plain;
  options.shard_tokens = config.integer("shard_tokens");
  options.validation_fraction = config.real("val_fraction");
  options.type = parse_token_dtype(config.text("dtype"));  // nothing for "auto"
  options.skip_errors = config.text("on_error") == "skip";
  options.keep_empty = config.boolean("keep_empty");
  options.split_long = config.find_integer("split_long").value_or(0);
  options.workers = config.integer("workers") > 0 ? static_cast<int>(config.integer("workers")) : cores;
  resolve_max_errors(config, options);
  resolve_part(config, options);
  return options;
}

}  // namespace keel
