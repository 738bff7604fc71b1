#include "keel/tokenizer/json_node.h"

#include <algorithm>
#include <set>

#include "keel/base/error.h"

namespace keel {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr size_t kMaxDepth = 64;

std::string child_path(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

std::string shown(const std::string& path) {
  return path.empty() ? "the file" : path;
}

}  // namespace

void JsonNode::fail(const std::string& problem) const {
  throw Error(ErrorKind::format, shown(path_) + " " + problem, *file_);
}

void JsonNode::refuse(const std::string& what) const {
  throw Error(ErrorKind::usage, shown(path_) + ": " + what + " is not read by this version", *file_);
}

std::string_view JsonNode::text() const {
  std::string_view value;
  if (element_.get_string().get(value) != simdjson::SUCCESS) fail("is not a string");
  return value;
}

bool JsonNode::boolean() const {
  bool value = false;
  if (element_.get_bool().get(value) != simdjson::SUCCESS) fail("is neither true nor false");
  return value;
}

int64_t JsonNode::integer() const {
  int64_t value = 0;
  if (element_.get_int64().get(value) != simdjson::SUCCESS) fail("is not a whole number");
  return value;
}

simdjson::dom::array JsonNode::array() const {
  simdjson::dom::array value;
  if (element_.get_array().get(value) != simdjson::SUCCESS) fail("is not a list");
  return value;
}

simdjson::dom::object JsonNode::object() const {
  simdjson::dom::object value;
  if (element_.get_object().get(value) != simdjson::SUCCESS) fail("is not an object");
  return value;
}

std::vector<JsonNode> JsonNode::items() const {
  std::vector<JsonNode> nodes;
  for (const simdjson::dom::element item : array()) {
    nodes.emplace_back(item, path_ + "[" + std::to_string(nodes.size()) + "]", *file_);
  }
  return nodes;
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  simdjson::dom::element value;
  if (object().at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return JsonNode(value, child_path(path_, key), *file_);
}

JsonNode JsonNode::at(std::string_view key) const {
  std::optional<JsonNode> value = find(key);
  if (!value) fail("has no \"" + std::string(key) + "\"");
  return *value;
}

bool JsonNode::flag(std::string_view key, bool absent) const {
  const std::optional<JsonNode> value = find(key);
  return value ? value->boolean() : absent;
}

int64_t JsonNode::integer_or(std::string_view key, int64_t absent) const {
  const std::optional<JsonNode> value = find(key);
  return value ? value->integer() : absent;
}

void JsonNode::allow_keys(std::initializer_list<std::string_view> keys) const {
  std::set<std::string_view> seen;
  for (const auto& [key, value] : object()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) refuse("the key \"" + std::string(key) + "\"");
    if (!seen.insert(key).second) fail("has the key \"" + std::string(key) + "\" twice");
  }
}

JsonFile::JsonFile(std::string_view text, std::string name) : name_(std::move(name)) {
  if (text.size() > kMaxBytes) throw Error(ErrorKind::format, "more than 256 MiB of JSON", name_);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (parser_.allocate(text.size(), kMaxDepth) != simdjson::SUCCESS)
    throw Error(ErrorKind::memory, "not enough memory to read the file", name_);
  const auto error = parser_.parse(text.data(), text.size()).get(root_);
  if (error != simdjson::SUCCESS) {
    throw Error(ErrorKind::format, std::string("damaged JSON: ") + simdjson::error_message(error), name_);
  }
}

}  // namespace keel
