#pragma once

#include <simdjson.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

/// A value of a file of settings, with its place in it ("model.merges[3]") for errors. Views into the parser.
class JsonNode {
 public:
  JsonNode(simdjson::dom::element element, std::string path, const std::string& file)
      : element_(element), path_(std::move(path)), file_(&file) {}

  /// Error(format) "<path> <problem> (file)".
  [[noreturn]] void fail(const std::string& problem) const;
  /// Error(usage) "<path>: <what> is not read by this version (file)".
  [[noreturn]] void refuse(const std::string& what) const;

  simdjson::dom::element element() const { return element_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return element_.is_null(); }
  bool is_object() const { return element_.is_object(); }

  std::string_view text() const;
  bool boolean() const;
  int64_t integer() const;
  simdjson::dom::array array() const;
  simdjson::dom::object object() const;
  std::vector<JsonNode> items() const;

  /// The value of a key, std::nullopt if it is missing or null.
  std::optional<JsonNode> find(std::string_view key) const;
  /// Error(format) if it is missing or null.
  JsonNode at(std::string_view key) const;
  bool flag(std::string_view key, bool absent) const;
  int64_t integer_or(std::string_view key, int64_t absent) const;

  /// Refuses keys other than these, by name; Error(format) for a key that is there twice.
  void allow_keys(std::initializer_list<std::string_view> keys) const;

 private:
  simdjson::dom::element element_;
  std::string path_;
  const std::string* file_;
};

/// Parses a file's text: strict JSON of at most 256 MiB, at most 64 levels deep. Error(format).
class JsonFile {
 public:
  JsonFile(std::string_view text, std::string name);
  JsonNode root() const { return {root_, "", name_}; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

}  // namespace keel
