#include <algorithm>
#include <nlohmann/json.hpp>

#include "keel/base/config_internal.h"
#include "keel/base/config_state_internal.h"
#include "keel/base/suggest.h"

namespace keel {
namespace {

std::vector<std::string> groups_of(std::string_view path) {
  std::vector<std::string> groups;
  for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
    groups.emplace_back(path.substr(0, dot));
  }
  return groups;
}

Json checked_default(const ConfigKey& key) {
  if (key.initial.empty()) return nullptr;
  Json value = parse_json(key.initial, "default of " + key.path, ErrorKind::internal);
  if (const auto problem = detail::check_value(key, value)) {
    throw Error(ErrorKind::internal, "default: " + problem->message);
  }
  return value;
}

}  // namespace

ConfigSchema::ConfigSchema(std::vector<ConfigKey> keys) {
  auto state = std::make_shared<State>();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!state->index.emplace(keys[i].path, i).second) {
      throw Error(ErrorKind::internal, "config key '" + keys[i].path + "' is declared twice");
    }
    for (std::string& group : groups_of(keys[i].path)) state->groups.insert(std::move(group));
    state->paths.push_back(keys[i].path);
    state->defaults.push_back(checked_default(keys[i]));
  }
  for (const std::string& group : state->groups) {
    if (state->index.contains(group)) {
      throw Error(ErrorKind::internal, "config key '" + group + "' is also a group");
    }
  }
  state->keys = std::move(keys);
  state_ = std::move(state);
}

const std::vector<ConfigKey>& ConfigSchema::keys() const noexcept {
  return state_->keys;
}

const ConfigKey* ConfigSchema::find(std::string_view path) const noexcept {
  const auto found = state_->index.find(path);
  return found == state_->index.end() ? nullptr : &state_->keys[found->second];
}

bool ConfigSchema::is_group(std::string_view path) const noexcept {
  return state_->groups.contains(path);
}

const ConfigKey& ConfigSchema::at(std::string_view path, const std::string& where) const {
  if (const ConfigKey* key = find(path)) return *key;
  if (is_group(path)) {
    throw Error(ErrorKind::config, quoted_name(path) + " is a group of keys, not a setting", where,
                "its keys are " + state_->members(path));
  }
  throw Error(ErrorKind::config, "unknown config key " + quoted_name(path), where, state_->hint(path));
}

std::string ConfigSchema::State::members(std::string_view group) const {
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    if (path.size() <= group.size() || !path.starts_with(group) || path[group.size()] != '.') continue;
    std::string name = path.substr(0, path.find('.', group.size() + 1));
    if (name.size() < path.size()) name += ".*";
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string ConfigSchema::State::hint(std::string_view path) const {
  if (std::string near = suggestion(path, paths); near.starts_with("did you mean")) return near;
  const std::vector<std::string> group_names(groups.begin(), groups.end());
  if (std::string near = suggestion(path, group_names); near.starts_with("did you mean")) return near;
  // A key at the wrong level, or in the wrong group.
  const std::string_view name = path.substr(path.rfind('.') + 1);
  for (const std::string& known : paths) {
    if (std::string_view(known).substr(known.rfind('.') + 1) == name) return "did you mean '" + known + "'?";
  }
  return {};
}

}  // namespace keel
