#include "keel/tokenizer/document.h"

#include <fmt/core.h>

#include <numeric>
#include <utility>

#include "keel/base/error.h"
#include "keel/base/quantity.h"
#include "keel/tokenizer/utf8_repair.h"

namespace keel {
namespace {

std::vector<std::string> wanted_paths(const DocumentOptions& options) {
  std::vector<std::string> paths{options.text_field, options.id_field};
  for (const Condition& condition : options.conditions) paths.push_back(condition.field());
  return paths;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

const char* drop_reason_name(DropReason reason) {
  switch (reason) {
    case DropReason::empty:
      return "empty";
    case DropReason::missing:
      return "missing";
    case DropReason::null:
      return "null";
    case DropReason::filtered:
      return "filtered";
    case DropReason::bad_json:
      return "bad_json";
    case DropReason::bad_type:
      return "bad_type";
    case DropReason::bad_utf8:
      return "bad_utf8";
    case DropReason::too_long:
      return "too_long";
    case DropReason::damaged_file:
      return "damaged_file";
  }
  return "unknown";
}

bool is_error(DropReason reason) {
  return reason != DropReason::empty && reason != DropReason::missing && reason != DropReason::null &&
         reason != DropReason::filtered;
}

int64_t DropCounts::total() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t DropCounts::errors() const {
  int64_t errors = 0;
  for (int i = 0; i < kDropReasons; ++i) errors += is_error(static_cast<DropReason>(i)) ? counts[i] : 0;
  return errors;
}

void DropCounts::add(const DropCounts& other) {
  for (int i = 0; i < kDropReasons; ++i) counts[i] += other.counts[i];
}

Condition::Condition(const std::string& text) {
  constexpr std::pair<const char*, Comparison> kComparisons[] = {
      {">=", Comparison::greater_equal}, {"<=", Comparison::less_equal}, {"==", Comparison::equal},
      {"!=", Comparison::not_equal},     {">", Comparison::greater},     {"<", Comparison::less},
      {"=", Comparison::equal}};
  const size_t at = text.find_first_of("<>=!");
  for (const auto& [sign, comparison] : kComparisons) {
    if (at == std::string::npos || at == 0 || !text.substr(at).starts_with(sign)) continue;
    field_ = trimmed(std::string_view(text).substr(0, at));
    comparison_ = comparison;
    value_ = trimmed(std::string_view(text).substr(at + std::string_view(sign).size()));
    if (value_.size() >= 2 && (value_[0] == '"' || value_[0] == '\'') && value_.back() == value_[0]) {
      value_ = value_.substr(1, value_.size() - 2);
    } else if (value_.empty()) {
      break;
    } else {
      number_ = parse_real(value_);
    }
    if (field_.empty()) break;
    return;
  }
  throw Error(ErrorKind::usage, "a condition that cannot be read", "--where '" + text + "'",
              "field, then < <= == != >= or >, then a value");
}

template <class T>
bool Condition::compare(const T& left, const T& right) const {
  switch (comparison_) {
    case Comparison::less:
      return left < right;
    case Comparison::less_equal:
      return left <= right;
    case Comparison::equal:
      return left == right;
    case Comparison::not_equal:
      return left != right;
    case Comparison::greater_equal:
      return left >= right;
    case Comparison::greater:
      return left > right;
  }
  return false;
}

bool Condition::holds(const JsonField& value) const {
  if (value.kind == JsonKind::missing || value.kind == JsonKind::array || value.kind == JsonKind::object) return false;
  std::string text(value.raw);
  if (value.kind == JsonKind::string) {
    text.clear();
    append_json_string(value.raw, text);
  }
  const std::optional<double> number = number_ ? parse_real(text) : std::nullopt;
  if (number) return compare(*number, *number_);
  const bool has_order = value.kind == JsonKind::string && !number_;
  const bool only_equality = comparison_ == Comparison::equal || comparison_ == Comparison::not_equal;
  return (has_order || only_equality) && compare(text, value_);
}

DocumentParser::DocumentParser(const DocumentOptions& options) : options_(options), scanner_(wanted_paths(options)) {}

void DocumentParser::drop(ParsedDocument& document, DropReason reason, std::string message) {
  document.reason = reason;
  document.message = std::move(message);
}

bool DocumentParser::parse(DocumentFormat format, const Record& record, ParsedDocument& document) {
  document.reason.reset();
  document.message.clear();
  document.text.clear();
  document.part_ends.clear();
  document.has_field.clear();
  document.replaced_bytes = document.replaced_surrogates = 0;
  if (format == DocumentFormat::jsonl) return parse_json(record, document);
  if (static_cast<int64_t>(record.bytes.size()) > options_.max_record_bytes) {
    drop(document, DropReason::too_long, fmt::format("a text of more than {} bytes", options_.max_bytes));
  } else {
    take_bytes(record.bytes, document);
    document.part_ends.push_back(static_cast<int64_t>(document.text.size()));
  }
  if (!document.reason && document.text.empty()) drop(document, DropReason::empty, "an empty text");
  return true;
}

bool DocumentParser::parse_json(const Record& record, ParsedDocument& document) {
  const std::string_view line = trimmed(record.bytes);
  if (line.empty()) return false;
  if (static_cast<int64_t>(line.size()) > options_.max_record_bytes) {
    drop(document, DropReason::too_long, fmt::format("a record of {} bytes", line.size()));
    return true;
  }
  if (!options_.replace_invalid_utf8) {
    if (const int64_t at = find_invalid_utf8(line); at >= 0) {
      drop(document, DropReason::bad_utf8,
           fmt::format("invalid UTF-8 byte 0x{:02X} in column {}", static_cast<unsigned char>(line[at]), at + 1));
      return true;
    }
  }
  const JsonFault fault = scanner_.scan(line);
  if (fault.what != nullptr) {
    drop(document, DropReason::bad_json, fmt::format("bad JSON in column {}: {}", fault.offset + 1, fault.what));
    return true;
  }
  document.has_field.push_back(scanner_.fields()[0].kind != JsonKind::missing);
  for (size_t i = 0; i < options_.conditions.size(); ++i) {
    document.has_field.push_back(scanner_.fields()[2 + i].kind != JsonKind::missing);
  }
  for (size_t i = 0; i < options_.conditions.size(); ++i) {
    if (options_.conditions[i].holds(scanner_.fields()[2 + i])) continue;
    drop(document, DropReason::filtered, {});
    return true;
  }
  take_text(scanner_.fields()[0], document);
  return true;
}

void DocumentParser::take_text(const JsonField& field, ParsedDocument& document) {
  const auto wrong = [&](const JsonField& found) {
    drop(document, DropReason::bad_type,
         fmt::format("the field '{}' is {}{}", options_.text_field, describe(found.kind),
                     options_.text_is_list ? ", not a list of strings" : ", not a string"));
  };
  if (field.kind == JsonKind::missing) {
    return drop(document, DropReason::missing, fmt::format("no field '{}'", options_.text_field));
  }
  if (field.kind == JsonKind::null) {
    return drop(document, DropReason::null, fmt::format("the field '{}' is null", options_.text_field));
  }
  if (field.kind == JsonKind::array && options_.text_is_list) {
    for (const JsonField& element : json_elements(field.raw)) {
      if (element.kind != JsonKind::string) return wrong(element);
      if (!take_string(element.raw, document)) return;
    }
  } else if (field.kind == JsonKind::string) {
    if (!take_string(field.raw, document)) return;
  } else {
    return wrong(field);
  }
  if (document.text.empty()) drop(document, DropReason::empty, "an empty text");
}

bool DocumentParser::take_string(std::string_view raw, ParsedDocument& document) {
  unescaped_.clear();
  const int64_t lone = append_json_string(raw, unescaped_);
  if (lone > 0 && !options_.replace_invalid_utf8) {
    drop(document, DropReason::bad_utf8, "half of a surrogate pair in the text");
    return false;
  }
  document.replaced_surrogates += lone;
  take_bytes(unescaped_, document);
  document.part_ends.push_back(static_cast<int64_t>(document.text.size()));
  return !document.reason;
}

void DocumentParser::take_bytes(std::string_view bytes, ParsedDocument& document) {
  if (static_cast<int64_t>(document.text.size() + bytes.size()) > options_.max_bytes) {
    return drop(
        document, DropReason::too_long,
        fmt::format("a text of {} bytes, of {} at most", document.text.size() + bytes.size(), options_.max_bytes));
  }
  if (options_.replace_invalid_utf8) {
    document.replaced_bytes += append_replacing_invalid_utf8(bytes, document.text);
  } else if (const int64_t at = find_invalid_utf8(bytes); at >= 0) {
    drop(document, DropReason::bad_utf8,
         fmt::format("invalid UTF-8 byte 0x{:02X} at byte {} of the text", static_cast<unsigned char>(bytes[at]), at));
  } else {
    document.text.append(bytes);
  }
}

std::string DocumentParser::id_of(const Record& record) {
  if (scanner_.scan(record.bytes).what != nullptr) return {};
  const JsonField& id = scanner_.fields()[1];
  std::string text;
  if (id.kind == JsonKind::string) {
    append_json_string(id.raw, text);
  } else if (id.kind == JsonKind::number) {
    text = id.raw;
  }
  return text;
}

}  // namespace keel
