#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "keel/base/config.h"

namespace keel {

struct ConfigSchema::State {
  std::vector<ConfigKey> keys;
  std::vector<std::string> paths;
  std::vector<Json> defaults;  // null = absent
  std::map<std::string, size_t, std::less<>> index;
  std::set<std::string, std::less<>> groups;

  /// What stands in a group, separated by commas: "train.steps", "optimizer.classes.*" for a group inside it.
  std::string members(std::string_view group) const;
  /// The nearest key or group to a path that is none.
  std::string hint(std::string_view path) const;
};

struct Config::State {
  struct Entry {
    Json value;  // null = absent
    ConfigOrigin origin;
    ConfigLayer decided_by = ConfigLayer::initial;            // the highest layer that said something, null included
    std::vector<std::pair<std::string, JsonPosition>> inner;  // positions inside lists and objects, by pointer
    std::string option;                                       // that sets the key, for hints
  };

  explicit State(const ConfigSchema& config_schema);

  size_t index_of(std::string_view key) const;
  const Entry& entry(std::string_view key) const { return entries[index_of(key)]; }
  /// A value that is present.
  const Entry& present(std::string_view key) const;
  /// Checks and stores, unless a higher layer has decided already.
  void store(const ConfigKey& key, Json value, ConfigOrigin origin);

  ConfigSchema schema;
  std::vector<Entry> entries;
};

}  // namespace keel
