#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/tokenizer/json_record.h"
#include "keel/tokenizer/record_reader.h"

namespace keel {

/// Why a record does not become a document.
enum class DropReason {
  empty,         ///< no text, or one without tokens
  missing,       ///< the record has no such field
  null,          ///< the field is null
  filtered,      ///< a --where condition does not hold
  bad_json,      ///< not one JSON object
  bad_type,      ///< the field is neither a string nor (where that is wanted) a list of strings
  bad_utf8,      ///< bytes that are not UTF-8, or half of a surrogate pair
  too_long,      ///< more bytes than allowed, or more than the tokenizer can take at once
  damaged_file,  ///< the file turned out to be damaged as a whole
};
inline constexpr int kDropReasons = 9;

/// "bad_json".
KEEL_API const char* drop_reason_name(DropReason reason);
/// True for what stops a run unless bad records are to be skipped: bad_json, bad_type, bad_utf8, too_long,
/// damaged_file.
KEEL_API bool is_error(DropReason reason);

/// Documents dropped, by reason.
struct DropCounts {
  std::array<int64_t, kDropReasons> counts{};

  int64_t& operator[](DropReason reason) { return counts[static_cast<int>(reason)]; }
  int64_t operator[](DropReason reason) const { return counts[static_cast<int>(reason)]; }
  KEEL_API int64_t total() const;
  KEEL_API int64_t errors() const;
  KEEL_API void add(const DropCounts& other);
};

/// "score>=3", "lang==en", "meta.source!=web": a field, a comparison and a value. Where value and field are numbers (in
/// quotes too, unless the value is in quotes) they compare as numbers; otherwise strings compare byte by byte, and what
/// is not a string, or is compared with a number, only with == and !=. The empty value is written ''. A record without
/// the field does not pass.
class KEEL_API Condition {
 public:
  /// Error(usage) if it cannot be read.
  explicit Condition(const std::string& text);
  const std::string& field() const { return field_; }
  bool holds(const JsonField& value) const;

 private:
  enum class Comparison { less, less_equal, equal, not_equal, greater_equal, greater };
  template <class T>
  bool compare(const T& left, const T& right) const;

  std::string field_;
  Comparison comparison_ = Comparison::equal;
  std::string value_;
  std::optional<double> number_;
};

struct DocumentOptions {
  std::string text_field = "text";
  std::string id_field = "id";
  std::vector<Condition> conditions = {};
  bool text_is_list = false;
  bool replace_invalid_utf8 = false;
  int64_t max_bytes = int64_t{1} << 30;         ///< of a document's text
  int64_t max_record_bytes = int64_t{3} << 30;  ///< of a record
};

/// What came out of a record. `reason` empty: a document, its text in the parts [0, ends[0]), [ends[0], ends[1]) ...
struct ParsedDocument {
  std::optional<DropReason> reason = {};
  std::string message = {};  ///< what is wrong, for people
  std::string text = {};
  std::vector<int64_t> part_ends = {};
  /// Of a JSON object: whether the text field and then the fields of the conditions were there. Empty for what is none.
  std::vector<bool> has_field = {};
  int64_t replaced_bytes = 0;       ///< ill-formed sequences that became U+FFFD
  int64_t replaced_surrogates = 0;  ///< half surrogate pairs that became U+FFFD
};

/// Makes documents of records. One thread at a time.
class KEEL_API DocumentParser {
 public:
  explicit DocumentParser(const DocumentOptions& options);

  /// False for a blank line of jsonl, which is no record. Otherwise `document` is filled anew.
  bool parse(DocumentFormat format, const Record& record, ParsedDocument& document);

  /// The id field of a record as text, for messages; "" if there is none.
  std::string id_of(const Record& record);

 private:
  bool parse_json(const Record& record, ParsedDocument& document);
  void take_text(const JsonField& field, ParsedDocument& document);
  bool take_string(std::string_view raw, ParsedDocument& document);
  void take_bytes(std::string_view bytes, ParsedDocument& document);
  static void drop(ParsedDocument& document, DropReason reason, std::string message);

  DocumentOptions options_;
  JsonRecordScanner scanner_;  // the text, the id, then the conditions' fields
  std::string unescaped_;
};

}  // namespace keel
