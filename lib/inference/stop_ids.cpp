#include "keel/inference/stop_ids.h"

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "keel/base/files.h"
#include "keel/base/json.h"

namespace keel {
namespace {

std::vector<int32_t> eos_of(const JsonDocument& document) {
  const Json& root = document.root();
  std::vector<int32_t> ids;
  if (!root.is_object()) throw document.error("", "must be an object");
  if (!root.contains("eos_token_id") || root.at("eos_token_id").is_null()) return ids;
  const Json& eos = root.at("eos_token_id");
  for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<int32_t>::max()) {
      throw document.error("/eos_token_id", "eos_token_id must be a token id or a list of them");
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

std::vector<int32_t> stop_ids(const ModelFolder& folder) {
  const std::filesystem::path generation = std::filesystem::path(folder.path) / "generation_config.json";
  if (is_there(generation)) {
    const std::vector<int32_t> ids =
        eos_of(JsonDocument(read_regular_file(generation, kMaxFolderJson), generation.string(), ErrorKind::format));
    if (!ids.empty()) return ids;
  }
  return eos_of(JsonDocument(folder.config_text, folder.config_path, ErrorKind::format));
}

}  // namespace keel
