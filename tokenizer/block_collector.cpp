#include "keel/tokenizer/block_collector.h"

#include <fmt/core.h>

#include <utility>

#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/quantity.h"
#include "keel/tokenizer/byte_source.h"
#include "keel/tokenizer/counted.h"

namespace keel {
namespace {

constexpr int64_t kMaxErrorsKept = 100;
constexpr int64_t kMissingAtStart = 1000;  // records without the field, after which no more are looked at
constexpr int64_t kFewRecords = 1000;      // below this many a share of errors says little before the end

std::string place(const InputFile& file, const DropNotice& notice) {
  return fmt::format("{}:{}, byte {}", source_name(file.path), notice.line, notice.byte_offset);
}

}  // namespace

BlockCollector::BlockCollector(const std::vector<InputFile>& inputs, const EncodeOptions& options, TokenDtype type,
                               const std::filesystem::path& folder, Progress& progress)
    : options_(options),
      progress_(progress),
      train_(folder, "train", type, options.shard_tokens),
      validation_(folder, "val", type, options.shard_tokens) {
  result_.type = type;
  fields_.resize(1 + options.documents.conditions.size());
  for (const InputFile& file : inputs) result_.sources.emplace_back().file = file;
}

void BlockCollector::take(const EncodedBlock& block) {
  SourceInfo& source = result_.sources[block.block.file];
  source.format = block.block.format;
  source.compression = block.block.compression;
  source.read = true;
  switch (block.block.kind) {
    case RecordBlock::Kind::records:
    case RecordBlock::Kind::oversized:
      return add_block(block, source);
    case RecordBlock::Kind::file_end:
      return end_file(block.block, source);
    case RecordBlock::Kind::damaged:
      return drop_file(block.block, source);
  }
}

EncodeResult BlockCollector::finish() {
  check_errors(0);
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (!fields_[i].found && fields_[i].leading_missing > 0) throw missing_field(i);
  }
  if (result_.tokens == 0) throw no_tokens();
  result_.shards = train_.finish();
  for (DataManifest::Shard& shard : validation_.finish()) result_.shards.push_back(std::move(shard));
  // Empty documents that were alone in a shard: without tokens it is not written.
  int64_t lost = result_.documents;
  for (const DataManifest::Shard& shard : result_.shards) lost -= shard.documents;
  result_.documents -= lost;
  result_.drops[DropReason::empty] += lost;
  return std::move(result_);
}

void BlockCollector::add_block(const EncodedBlock& block, SourceInfo& source) {
  refuse_conditions_on_text(block.block);
  note_missing_fields(block);
  for (const DropNotice& notice : block.notices) take_notice(block.block.file, notice);
  train_.append(block, Split::train);
  validation_.append(block, Split::validation);
  source.records += block.records;
  source.documents += static_cast<int64_t>(block.documents.size());
  source.drops.add(block.drops);
  for (const EncodedBlock::Document& document : block.documents) {
    source.tokens += document.tokens;
    pending_.text_bytes += document.text_bytes;
  }
  pending_.replaced_bytes += block.replaced_bytes;
  pending_.replaced_surrogates += block.replaced_surrogates;
  records_ += block.records;
  errors_ += block.drops.errors();
  check_errors(kFewRecords);
  // Only a compressed file can turn out to be damaged after some of its records.
  if (!options_.skip_errors || source.compression == "none") commit_shards();
  const ProgressField tokens{"tokens", static_cast<double>(result_.tokens + source.tokens), "{:.0f}"};
  progress_.update(finished_bytes_ + block.block.bytes_taken, {&tokens, 1});
}

void BlockCollector::end_file(const RecordBlock& block, SourceInfo& source) {
  source.xxh3 = block.xxh3;
  if (block.is_empty) {
    ++result_.empty_files;
    log::warn("no content ({}): {} bytes", source_name(source.file.path), block.bytes_taken);
  }
  close_source(source);
}

void BlockCollector::drop_file(const RecordBlock& block, SourceInfo& source) {
  if (!options_.skip_errors) {
    throw Error(ErrorKind::format, block.damage + ": --on-error skip drops such a file and counts it");
  }
  train_.roll_back();
  validation_.roll_back();
  pending_ = {};
  log::warn("{}: dropped with its {}", block.damage, counted(source.records, "whole record"));
  source.drops[DropReason::damaged_file] += source.records - source.drops.total();
  source.documents = source.tokens = 0;
  keep_error(block.file, {DropReason::damaged_file, block.line, block.byte_offset, block.damage, {}});
  ++errors_;
  ++result_.damaged_files;
  close_source(source);
}

void BlockCollector::close_source(const SourceInfo& source) {
  commit_shards();
  result_.records += source.records;
  result_.documents += source.documents;
  result_.tokens += source.tokens;
  result_.drops.add(source.drops);
  result_.text_bytes += pending_.text_bytes;
  result_.replaced_bytes += pending_.replaced_bytes;
  result_.replaced_surrogates += pending_.replaced_surrogates;
  pending_ = {};
  finished_bytes_ += source.file.bytes;
  check_errors(kFewRecords);
}

void BlockCollector::commit_shards() {
  train_.commit();
  validation_.commit();
}

void BlockCollector::refuse_conditions_on_text(const RecordBlock& block) const {
  if (options_.documents.conditions.empty() || block.format != DocumentFormat::txt) return;
  throw Error(ErrorKind::usage, "--where compares fields of jsonl records, and this input is txt",
              source_name(result_.sources[block.file].file.path), "leave out --where, or this input");
}

void BlockCollector::note_missing_fields(const EncodedBlock& block) {
  for (size_t i = 0; i < fields_.size(); ++i) {
    FieldUse& field = fields_[i];
    if (field.seen.empty()) field.seen = block.fields[i].seen;
    if (field.found) continue;
    field.leading_missing += block.fields[i].leading_missing;
    field.found = block.fields[i].found;
    if (field.leading_missing >= kMissingAtStart) throw missing_field(i);
  }
}

void BlockCollector::take_notice(int64_t file, const DropNotice& notice) {
  const InputFile& input = result_.sources[file].file;
  if (is_error(notice.reason)) {
    if (!options_.skip_errors) {
      throw Error(ErrorKind::format, notice.message, place(input, notice),
                  fmt::format("{}; see {}--on-error", drop_reason_name(notice.reason),
                              notice.reason == DropReason::bad_utf8 ? "--invalid-utf8 and " : ""));
    }
    keep_error(file, notice);
  }
  if (notice.message.empty() || std::exchange(warned_[static_cast<int>(notice.reason)], true)) return;
  log::warn("dropped: {} ({}); more like it are only counted", notice.message, place(input, notice));
}

void BlockCollector::keep_error(int64_t file, const DropNotice& notice) {
  if (static_cast<int64_t>(result_.errors.size()) < kMaxErrorsKept) result_.errors.push_back({file, notice});
}

void BlockCollector::check_errors(int64_t least_records) const {
  if (options_.max_errors && errors_ > *options_.max_errors) {
    throw Error(ErrorKind::format, fmt::format("{} in the input, more than --max-errors", counted(errors_, "error")),
                first_error());
  }
  if (!options_.max_error_fraction || records_ < least_records) return;
  if (static_cast<double>(errors_) <= *options_.max_error_fraction * static_cast<double>(records_)) return;
  throw Error(ErrorKind::format,
              fmt::format("{} among {}, more than the {}% of --max-errors", counted(errors_, "error"),
                          counted(records_, "record"), format_real(100 * *options_.max_error_fraction)),
              first_error());
}

std::string BlockCollector::first_error() const {
  if (result_.errors.empty()) return {};
  const InputError& error = result_.errors.front();
  return "the first: " + error.notice.message + ", " + place(result_.sources[error.file].file, error.notice);
}

Error BlockCollector::missing_field(size_t field) const {
  const std::string& name =
      field == 0 ? options_.documents.text_field : options_.documents.conditions[field - 1].field();
  std::string seen;
  for (const std::string& key : fields_[field].seen) seen += (seen.empty() ? "" : ", ") + key;
  const char* hint = field == 0 ? "--text-field names another" : "--where keeps only records that have it";
  return {ErrorKind::format,
          fmt::format("no field '{}' in the first {}", name, counted(fields_[field].leading_missing, "record")),
          source_name(result_.sources.front().file.path),
          fmt::format("{}; fields seen: {}", hint, seen.empty() ? "none" : seen)};
}

Error BlockCollector::no_tokens() const {
  std::string reasons;
  for (int i = 0; i < kDropReasons; ++i) {
    const auto reason = static_cast<DropReason>(i);
    if (result_.drops[reason] == 0) continue;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", result_.drops[reason], drop_reason_name(reason));
  }
  std::string where;
  for (const SourceInfo& source : result_.sources) {
    if (!source.read || where.size() > 200) continue;
    where += (where.empty() ? "" : ", ") + source_name(source.file.path);
    if (source.file.path != "-" && source.file.bytes == 0) where += ", 0 bytes";
  }
  std::string hint = result_.records == 0    ? "there are no documents in it"
                     : reasons.empty()       ? "all documents are empty"
                     : result_.documents > 0 ? "there are only empty documents, and dropped ones: " + reasons
                                             : "all records were dropped: " + reasons;
  if (result_.damaged_files > 0) hint = counted(result_.damaged_files, "damaged file") + " left out; " + hint;
  if (options_.parts > 1) hint += "; perhaps there are more parts than records";
  return {ErrorKind::format, "no tokens", where, hint};
}

}  // namespace keel
