#include "keel/base/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "keel/base/config_internal.h"
#include "keel/base/config_state_internal.h"
#include "keel/base/suggest.h"

namespace keel {
namespace {

constexpr size_t kLongestAssignment = 200;  // in messages

std::string place(const std::string& name, JsonPosition position) {
  if (position.line == 0) return name;
  return name + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

/// The values of one document, walked group by group.
class DocumentReader {
 public:
  DocumentReader(const JsonDocument& document, ConfigLayer layer, const ConfigSchema& schema)
      : document_(document), layer_(layer), schema_(schema) {}

  template <class Store>
  void read(const Json& group, const std::string& path, const std::string& pointer, Store store) {
    if (!group.is_object()) {
      throw document_.error(pointer, (path.empty() ? "the config" : path) + " must be an object with keys");
    }
    for (const auto& [name, value] : group.items()) {
      const std::string key = path.empty() ? name : path + "." + name;
      const std::string below = pointer + "/" + pointer_part(name);
      if (schema_.is_group(key)) {
        if (!value.is_null()) read(value, key, below, store);
        continue;
      }
      const ConfigKey& known = schema_.at(key, document_.where_key(below));
      if (!seen_.insert(key).second) throw document_.error(below, key + " is given twice");
      store(known, value, below, ConfigOrigin{layer_, document_.name(), document_.position_of_value(below)});
    }
  }

 private:
  const JsonDocument& document_;
  ConfigLayer layer_;
  const ConfigSchema& schema_;
  std::set<std::string> seen_;
};

void collect_positions(const JsonDocument& document, const Json& value, const std::string& pointer,
                       const std::string& inner, std::vector<std::pair<std::string, JsonPosition>>& out) {
  constexpr size_t kMost = 1000;
  if (!value.is_structured() || out.size() >= kMost) return;
  for (const auto& [name, element] : value.items()) {
    const std::string step = "/" + pointer_part(name);
    out.emplace_back(inner + step, document.position_of_value(pointer + step));
    collect_positions(document, element, pointer + step, inner + step, out);
  }
}

}  // namespace

std::string ConfigOrigin::text() const {
  switch (layer) {
    case ConfigLayer::initial:
      return "default";
    case ConfigLayer::recipe:
      return name;
    case ConfigLayer::file:
      return position.line > 0 ? name + ":" + std::to_string(position.line) : name;
    case ConfigLayer::set:
      return "--set";
    case ConfigLayer::flag:
      return "flag " + name;
  }
  return {};
}

std::string ConfigOrigin::where() const {
  switch (layer) {
    case ConfigLayer::initial:
      return "default";
    case ConfigLayer::recipe:
    case ConfigLayer::file:
      return place(name, position);
    case ConfigLayer::set:
      return "--set " + shortened(name, kLongestAssignment);
    case ConfigLayer::flag:
      return name;
  }
  return {};
}

Config::State::State(const ConfigSchema& config_schema) : schema(config_schema) {
  for (const Json& value : schema.state_->defaults) entries.push_back({value, {}, ConfigLayer::initial, {}, {}});
}

size_t Config::State::index_of(std::string_view key) const {
  const auto found = schema.state_->index.find(key);
  if (found == schema.state_->index.end()) {
    throw Error(ErrorKind::internal, "config key '" + std::string(key) + "' is not declared");
  }
  return found->second;
}

const Config::State::Entry& Config::State::present(std::string_view key) const {
  const Entry& found = entry(key);
  if (found.value.is_null()) {
    throw Error(ErrorKind::config, std::string(key) + " must be given", "",
                (found.option.empty() ? "" : found.option + " or ") + "--set " + std::string(key) + "=...");
  }
  return found;
}

void Config::State::store(const ConfigKey& key, Json value, ConfigOrigin origin) {
  const size_t index = index_of(key.path);
  if (!value.is_null()) {
    if (const auto problem = detail::check_value(key, value)) {
      throw Error(ErrorKind::config, problem->message, origin.where(), problem->hint);
    }
  }
  Entry& target = entries[index];
  if (origin.layer < target.decided_by) return;
  target.decided_by = origin.layer;
  target.inner.clear();
  if (value.is_null()) {
    target.value = schema.state_->defaults[index];
    target.origin = {};
  } else {
    target.value = std::move(value);
    target.origin = std::move(origin);
  }
}

Config::Config(const ConfigSchema& schema) : state_(std::make_unique<State>(schema)) {}
Config::Config(const Config& other) : state_(std::make_unique<State>(*other.state_)) {}
Config& Config::operator=(const Config& other) {
  if (this != &other) state_ = std::make_unique<State>(*other.state_);
  return *this;
}
Config::Config(Config&&) noexcept = default;
Config& Config::operator=(Config&&) noexcept = default;
Config::~Config() = default;

void Config::apply(const JsonDocument& document, ConfigLayer layer, std::string_view pointer) {
  const Json::json_pointer at{std::string(pointer)};
  if (!document.root().contains(at)) throw document.error("", "no value at '" + std::string(pointer) + "'");
  DocumentReader reader(document, layer, state_->schema);
  reader.read(document.root().at(at), "", std::string(pointer),
              [&](const ConfigKey& key, const Json& value, const std::string& below, ConfigOrigin origin) {
                std::vector<std::pair<std::string, JsonPosition>> inner;
                collect_positions(document, value, below, "", inner);
                state_->store(key, value, std::move(origin));
                State::Entry& entry = state_->entries[state_->index_of(key.path)];
                if (entry.decided_by == layer) entry.inner = std::move(inner);
              });
}

void Config::apply_file(const std::filesystem::path& path, ConfigLayer layer, std::string_view pointer) {
  apply(read_json(path, ErrorKind::config), layer, pointer);
}

void Config::apply_set(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  const std::string where = "--set " + shortened(assignment, kLongestAssignment);
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorKind::config, "--set takes KEY=VALUE", where, "as in --set train.steps=100");
  }
  const ConfigKey& key = state_->schema.at(assignment.substr(0, equals), where);
  state_->store(key, detail::value_of_text(key, assignment.substr(equals + 1)), {ConfigLayer::set, assignment, {}});
}

void Config::apply_flag(std::string_view key, const std::string& value, const std::string& flag) {
  const ConfigKey& known = state_->schema.keys()[state_->index_of(key)];
  state_->store(known, detail::value_of_text(known, value), {ConfigLayer::flag, flag, {}});
}

void Config::apply_value(std::string_view key, const Json& value, const ConfigOrigin& origin) {
  state_->store(state_->schema.keys()[state_->index_of(key)], value, origin);
}

void Config::name_option(std::string_view key, const std::string& option) {
  state_->entries[state_->index_of(key)].option = option;
}

const ConfigSchema& Config::schema() const noexcept {
  return state_->schema;
}

bool Config::has(std::string_view key) const {
  return !state_->entry(key).value.is_null();
}

bool Config::is_given(std::string_view key) const {
  return has(key) && state_->entry(key).origin.layer != ConfigLayer::initial;
}

namespace {

template <class T>
T value_as(const Json& value, std::string_view key) {
  try {
    return value.get<T>();
  } catch (const Json::exception&) {
    throw Error(ErrorKind::internal, "config key '" + std::string(key) + "' is read as another type than declared");
  }
}

}  // namespace

bool Config::boolean(std::string_view key) const {
  return value_as<bool>(value(key), key);
}
int64_t Config::integer(std::string_view key) const {
  const Json& number = value(key);
  if (!number.is_number_integer()) {
    throw Error(ErrorKind::internal, "config key '" + std::string(key) + "' is not an integer");
  }
  return number.get<int64_t>();
}
double Config::real(std::string_view key) const {
  return value_as<double>(value(key), key);
}
std::string Config::text(std::string_view key) const {
  return value_as<std::string>(value(key), key);
}
std::vector<int64_t> Config::integers(std::string_view key) const {
  return value_as<std::vector<int64_t>>(value(key), key);
}
std::vector<double> Config::reals(std::string_view key) const {
  return value_as<std::vector<double>>(value(key), key);
}
std::vector<std::string> Config::texts(std::string_view key) const {
  return value_as<std::vector<std::string>>(value(key), key);
}
const Json& Config::value(std::string_view key) const {
  return state_->present(key).value;
}

bool Config::is_word(std::string_view key) const {
  const Json& value = state_->entry(key).value;
  const auto& choices = state_->schema.keys()[state_->index_of(key)].choices;
  return value.is_string() &&
         std::find(choices.begin(), choices.end(), value.get_ref<const std::string&>()) != choices.end();
}

std::optional<int64_t> Config::find_integer(std::string_view key) const {
  return has(key) ? std::optional(integer(key)) : std::nullopt;
}
std::optional<double> Config::find_real(std::string_view key) const {
  return has(key) ? std::optional(real(key)) : std::nullopt;
}
std::optional<std::string> Config::find_text(std::string_view key) const {
  return has(key) ? std::optional(text(key)) : std::nullopt;
}

const ConfigOrigin& Config::origin(std::string_view key) const {
  return state_->entry(key).origin;
}

std::string Config::where(std::string_view key, std::string_view pointer) const {
  const State::Entry& entry = state_->entry(key);
  for (const auto& [inner, position] : entry.inner) {
    if (inner == pointer) return place(entry.origin.name, position);
  }
  return entry.origin.where();
}

Error Config::error(std::string_view key, const std::string& message, const std::string& hint) const {
  return {ErrorKind::config, message, where(key), hint};
}

}  // namespace keel
