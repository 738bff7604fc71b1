#include "keel/base/json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "json_internal.h"
#include "keel/base/files.h"

namespace keel {

struct JsonDocument::State {
  std::string text;
  std::string name;
  ErrorKind kind;
  Json root;
};

namespace {

std::string place(const std::string& name, JsonPosition position) {
  if (position.line == 0) return name;
  return name + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

JsonPosition position_of(std::string_view text, std::optional<size_t> offset) {
  return offset ? detail::json_position(text, *offset) : JsonPosition{};
}

}  // namespace

JsonDocument::JsonDocument(std::string text, std::string name, ErrorKind kind, const JsonLimits& limits)
    : state_(std::make_unique<State>()) {
  state_->root = parse_json(text, name, kind, limits);
  state_->text = std::move(text);
  state_->name = std::move(name);
  state_->kind = kind;
}

JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

const Json& JsonDocument::root() const noexcept {
  return state_->root;
}
const std::string& JsonDocument::name() const noexcept {
  return state_->name;
}
ErrorKind JsonDocument::kind() const noexcept {
  return state_->kind;
}

JsonPosition JsonDocument::position_of_value(std::string_view pointer) const {
  return position_of(state_->text, detail::find_in_json(state_->text, pointer).value);
}

JsonPosition JsonDocument::position_of_key(std::string_view pointer) const {
  return position_of(state_->text, detail::find_in_json(state_->text, pointer).key);
}

std::string JsonDocument::where(std::string_view pointer) const {
  return place(state_->name, position_of_value(pointer));
}

std::string JsonDocument::where_key(std::string_view pointer) const {
  return place(state_->name, position_of_key(pointer));
}

Error JsonDocument::error(std::string_view pointer, const std::string& message, const std::string& hint) const {
  return {state_->kind, message, where(pointer), hint};
}

JsonDocument read_json(const std::filesystem::path& path, ErrorKind kind, const JsonLimits& limits) {
  return {read_file(path, limits.max_bytes, kind), path.string(), kind, limits};
}

Json parse_json(std::string_view text, const std::string& name, ErrorKind kind, const JsonLimits& limits) {
  if (std::ssize(text) > limits.max_bytes) {
    throw Error(
        kind,
        "JSON of " + std::to_string(text.size()) + " bytes, at most " + std::to_string(limits.max_bytes) + " are read",
        name);
  }
  try {
    return detail::parse_json_text(text, limits.depth);
  } catch (const detail::JsonSyntaxError& error) {
    throw Error(kind, error.what, place(name, detail::json_position(text, error.offset)));
  }
}

void set_number(Json& object, const std::string& key, double value) {
  if (std::isfinite(value)) {
    object[key] = value;
    return;
  }
  object[key] = nullptr;
  object[key + "_non_finite"] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::string pointer_part(std::string_view key) {
  std::string part;
  for (const char c : key) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return part;
}

}  // namespace keel
