#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "keel/base/error.h"
#include "keel/base/export.h"

namespace keel {

/// Objects keep the order of their keys. Looking a key up takes time linear in the object's size: walk large objects.
/// This header only declares the type; who touches values includes <nlohmann/json.hpp>.
using Json = nlohmann::ordered_json;

/// Lines and columns count from 1; a column is a character (UTF-8 code point). 0 stands for unknown.
struct JsonPosition {
  int64_t line = 0;
  int64_t column = 0;
};

struct JsonLimits {
  int64_t max_bytes = int64_t{256} << 20;
  int depth = 100;  ///< of arrays and objects inside each other
};

/// A parsed text that remembers where everything stands. Values are addressed by JSON pointer (RFC 6901:
/// "/train/steps"; "" is the whole).
class KEEL_API JsonDocument {
 public:
  /// Strict RFC 8259: one value; duplicate keys, invalid UTF-8, NaN, Infinity, numbers beyond double, comments,
  /// trailing commas are refused (a byte order mark is skipped). Whole numbers that fit int64 or uint64 stay exact,
  /// larger ones become double. Error(kind) "<what> (name:line:column)". `name` is the file name for messages.
  JsonDocument(std::string text, std::string name, ErrorKind kind, const JsonLimits& limits = {});
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  const Json& root() const noexcept;
  const std::string& name() const noexcept;
  ErrorKind kind() const noexcept;

  /// Where the value begins, or the key in front of it; {0, 0} if there is none. Takes a walk through the text.
  JsonPosition position_of_value(std::string_view pointer) const;
  JsonPosition position_of_key(std::string_view pointer) const;
  /// "name:line:column" of the value (of the key), "name" if there is none.
  std::string where(std::string_view pointer) const;
  std::string where_key(std::string_view pointer) const;
  /// An Error of this document's kind about a value: "<message> (name:line:column): hint".
  Error error(std::string_view pointer, const std::string& message, const std::string& hint = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reads and parses a file or what a pipe gives. Error(io) if it cannot be read, Error(kind) if it is not JSON or too
/// large.
KEEL_API JsonDocument read_json(const std::filesystem::path& path, ErrorKind kind, const JsonLimits& limits = {});

/// Parses without keeping positions for later. Same checks and errors.
KEEL_API Json parse_json(std::string_view text, const std::string& name, ErrorKind kind, const JsonLimits& limits = {});

/// JSON text that is always valid: doubles as the shortest text that reads back equal (always with '.' or 'e'),
/// non-finite ones as null, bytes that are not UTF-8 as U+FFFD. indent < 0: one line without spaces (JSON lines);
/// otherwise that many spaces a level, arrays of plain values on one line. No newline at the end.
KEEL_API std::string json_text(const Json& value, int indent = -1);

/// object[key] = value; if it is not finite, null and object[key + "_non_finite"] = "nan", "inf" or "-inf".
KEEL_API void set_number(Json& object, const std::string& key, double value);

/// One part of a JSON pointer with ~ and / escaped.
KEEL_API std::string pointer_part(std::string_view key);

}  // namespace keel
