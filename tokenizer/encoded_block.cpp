#include "keel/tokenizer/encoded_block.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "keel/base/error.h"
#include "keel/base/hash.h"
#include "keel/base/signals.h"

namespace keel {
namespace {

constexpr int64_t kMaxNotices = 100;
constexpr int64_t kMaxSeenFields = 20;
constexpr size_t kMaxKeptBytes = 16 << 20;

template <class T>
void append_as(const std::vector<int32_t>& ids, std::string& bytes) {
  const size_t begin = bytes.size();
  bytes.resize(begin + ids.size() * sizeof(T));
  char* out = bytes.data() + begin;
  for (int32_t id : ids) {
    const T value = static_cast<T>(id);
    if (static_cast<int64_t>(value) != id) {
      throw Error(ErrorKind::internal, fmt::format("token id {} does not fit {} bytes", id, sizeof(T)));
    }
    std::copy_n(reinterpret_cast<const char*>(&value), sizeof value, out);
    out += sizeof value;
  }
}

}  // namespace

BlockEncoder::BlockEncoder(const Tokenizer& tokenizer, const BlockEncoderOptions& options, const RecordRule& text_rule)
    : tokenizer_(tokenizer),
      options_(options),
      text_rule_(text_rule),
      parser_(options.documents),
      encoder_(tokenizer.make_encoder()) {}

EncodedBlock BlockEncoder::encode(RecordBlock block) {
  EncodedBlock out;
  out.fields.resize(1 + options_.documents.conditions.size());
  if (block.kind == RecordBlock::Kind::oversized) {
    document_.reason = DropReason::too_long;
    document_.message = fmt::format("a record of more than {} bytes", options_.documents.max_record_bytes);
    ++out.records;
    note_drop({{}, block.line, block.byte_offset}, out);
    for (FieldUse& field : out.fields) field.found = true;  // nobody looked
  }
  if (block.kind == RecordBlock::Kind::records) {
    RecordCursor cursor(block.format == DocumentFormat::jsonl ? lines_ : text_rule_, block);
    while (const std::optional<Record> record = cursor.next()) {
      throw_if_stopped();
      if (!parser_.parse(block.format, *record, document_)) continue;
      add_record(*record, block.format, out);
      if (options_.stop_at_error && out.drops.errors() > 0) break;
    }
  }
  block.bytes = {};
  out.block = std::move(block);
  // What one huge document needed is not kept for the small ones after it.
  if (ids_.capacity() * sizeof(int32_t) > kMaxKeptBytes) ids_ = {};
  if (document_.text.capacity() > kMaxKeptBytes) document_.text = {};
  return out;
}

void BlockEncoder::add_record(const Record& record, DocumentFormat format, EncodedBlock& out) {
  ++out.records;
  if (!document_.reason) encode_document(out);
  note_fields(record, format, out);
  if (document_.reason) note_drop(record, out);
}

// Adds the document, or sets its reason to be dropped.
void BlockEncoder::encode_document(EncodedBlock& out) {
  ids_.clear();
  sequence_ends_.clear();
  if (options_.prepend_bos) ids_.push_back(*tokenizer_.bos_id());
  const size_t start = ids_.size();
  int64_t begin = 0;
  try {
    for (int64_t end : document_.part_ends) {
      const size_t before = ids_.size();
      encoder_->encode(std::string_view(document_.text).substr(begin, end - begin), ids_, options_.special);
      if (ids_.size() > before) sequence_ends_.push_back(static_cast<int64_t>(ids_.size()));
      begin = end;
    }
  } catch (const TextTooLong& error) {
    document_.reason = DropReason::too_long;
    document_.message = error.what();
    return;
  }
  if (ids_.size() == start) {
    document_.reason = DropReason::empty;
    document_.message = "a text without tokens";
    return;
  }
  if (options_.append_eod) {
    ids_.push_back(*tokenizer_.eos_id());
    ++sequence_ends_.back();
  }
  EncodedBlock::Document document;
  const size_t first = out.lengths.size();
  int64_t sequence = 0;
  for (int64_t end : sequence_ends_) {
    add_sequence(end - sequence, out.lengths);
    sequence = end;
  }
  if (*std::max_element(out.lengths.begin() + first, out.lengths.end()) > std::numeric_limits<int32_t>::max()) {
    out.lengths.resize(first);
    document_.reason = DropReason::too_long;
    document_.message = "a document of more than 2147483647 tokens; --split-long cuts such documents";
    return;
  }
  document.sequences = static_cast<int64_t>(out.lengths.size() - first);
  document.tokens = static_cast<int64_t>(ids_.size());
  document.text_bytes = static_cast<int64_t>(document_.text.size());
  document.split = split_of(document_.text);
  append_ids(out.tokens[static_cast<int>(document.split)]);
  out.documents.push_back(document);
  out.replaced_bytes += document_.replaced_bytes;
  out.replaced_surrogates += document_.replaced_surrogates;
}

void BlockEncoder::add_sequence(int64_t tokens, std::vector<int64_t>& lengths) const {
  const int64_t most = options_.max_sequence_tokens > 0 ? options_.max_sequence_tokens : tokens;
  for (; tokens > most; tokens -= most) lengths.push_back(most);
  lengths.push_back(tokens);
}

void BlockEncoder::append_ids(std::string& bytes) const {
  if (options_.type == TokenDtype::uint16) {
    append_as<uint16_t>(ids_, bytes);
  } else {
    append_as<int32_t>(ids_, bytes);
  }
}

// The same text always goes to the same side.
Split BlockEncoder::split_of(std::string_view text) const {
  const double place = static_cast<double>(xxh3(text) >> 11) * 0x1p-53;
  return place < options_.validation_fraction ? Split::validation : Split::train;
}

void BlockEncoder::note_fields(const Record& record, DocumentFormat format, EncodedBlock& out) const {
  if (format == DocumentFormat::txt) out.fields[0].found = true;
  for (size_t i = 0; i < document_.has_field.size(); ++i) {
    FieldUse& field = out.fields[i];
    if (field.found || (field.found = document_.has_field[i])) continue;
    if (field.leading_missing++ == 0) field.seen = json_keys(record.bytes, kMaxSeenFields);
  }
}

void BlockEncoder::note_drop(const Record& record, EncodedBlock& out) {
  const DropReason reason = *document_.reason;
  if (reason == DropReason::empty && options_.keep_empty) {
    out.documents.push_back({});
    return;
  }
  ++out.drops[reason];
  const bool noted = is_error(reason) ? out.drops.errors() <= kMaxNotices : out.drops[reason] == 1;
  if (!noted) return;
  DropNotice notice{reason, record.line, record.byte_offset, document_.message, {}};
  if (!record.bytes.empty() && record.bytes.front() == '{') notice.id = parser_.id_of(record);
  out.notices.push_back(std::move(notice));
}

}  // namespace keel
