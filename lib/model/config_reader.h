#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/json.h"

namespace keel {

/// Typed look-ups in a config.json with errors that say where.
class ConfigReader {
 public:
  explicit ConfigReader(const JsonDocument& document) : document_(document) {
    if (!document.root().is_object()) throw document.error("", "a model's config.json must be an object");
  }

  /// The value; null if the key is absent or null.
  const Json* find(const std::string& key) const {
    const auto at = document_.root().find(key);
    return at == document_.root().end() || at->is_null() ? nullptr : &*at;
  }
  /// True if the key is there, null or not.
  bool has(const std::string& key) const { return document_.root().contains(key); }
  int64_t integer(const std::string& key, int64_t absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
      throw error(key, key + " must be a whole number");
    }
    return value->get<int64_t>();
  }
  double real(const std::string& key, double absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_number()) throw error(key, key + " must be a number");
    return value->get<double>();
  }
  bool boolean(const std::string& key, bool absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) throw error(key, key + " must be true or false");
    return value->get<bool>();
  }
  std::string text(const std::string& key, const std::string& absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_string()) throw error(key, key + " must be a text");
    return value->get<std::string>();
  }
  Error error(const std::string& key, const std::string& message, const std::string& hint = {}) const {
    return document_.error(std::string("/").append(pointer_part(key)), message, hint);
  }

 private:
  const JsonDocument& document_;
};

}  // namespace keel
