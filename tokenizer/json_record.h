#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"

namespace keel {

enum class JsonKind { missing, null, boolean, number, string, array, object };

/// The article and name for messages: "a number", "an object", "no value".
KEEL_API std::string_view describe(JsonKind kind);

/// A value as it stands in the record: `raw` is its text, quotes and brackets included.
struct JsonField {
  JsonKind kind = JsonKind::missing;
  std::string_view raw;
};

/// Why a record is not one JSON object. `what` is nullptr when it is.
struct JsonFault {
  const char* what = nullptr;
  int64_t offset = 0;    ///< byte offset in the record
  bool cut_off = false;  ///< more bytes could have completed the record
};

/// Finds fields of a JSON object without building a tree. The whole record is checked against the grammar of RFC 8259
/// (nesting at most 1024, escapes well-formed, no raw control characters in strings), so a torn tail is noticed
/// whatever field is wanted. Beyond the RFC it takes NaN, Infinity and -Infinity, which Python writes; numbers may be
/// of any size, as their values are not looked at. Of a key that occurs twice the last one counts, as in Python. Bytes
/// above 0x7F are passed over inside strings: UTF-8 is the caller's business. (simdjson, at two to three times the
/// speed, stops at invalid UTF-8 and lone surrogates anywhere in the record, passes over broken values nobody asked
/// for, and does not say where an error is.)
class KEEL_API JsonRecordScanner {
 public:
  /// Paths of fields; dots lead into objects ("meta.lang").
  explicit JsonRecordScanner(const std::vector<std::string>& paths);

  /// Fills fields()[i] for path i; the views point into `record`. After a fault the fields are unspecified.
  JsonFault scan(std::string_view record);

  const std::vector<JsonField>& fields() const { return fields_; }

 private:
  friend class JsonScan;
  std::vector<std::vector<std::string>> paths_;
  std::vector<JsonField> fields_;
};

/// Appends the text of a JSON string, given with its quotes and well-formed as the scanner left it. A surrogate escape
/// without its other half becomes U+FFFD; returns how many there were.
KEEL_API int64_t append_json_string(std::string_view raw, std::string& text);

/// The elements of a JSON array, given as the scanner left it.
KEEL_API std::vector<JsonField> json_elements(std::string_view raw);

/// The keys of a JSON object in order, unescaped, at most `limit`; for messages.
KEEL_API std::vector<std::string> json_keys(std::string_view raw, int64_t limit);

}  // namespace keel
