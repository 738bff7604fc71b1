#include "checkpoint_manifest.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/json.h"
#include "keel/base/version.h"
#include "keel/checkpoint/checkpoint.h"
#include "keel/checkpoint/model_folder.h"

namespace keel::detail {
namespace {

namespace fs = std::filesystem;

const Json& member(const JsonDocument& document, const Json& object, const std::string& pointer,
                   const std::string& key) {
  if (!object.is_object() || !object.contains(key)) throw document.error(pointer, fmt::format("'{}' is missing", key));
  return object.at(key);
}

int64_t count_of(const JsonDocument& document, const Json& object, const std::string& pointer, const std::string& key) {
  const Json& value = member(document, object, pointer, key);
  if (!value.is_number_integer() || value < 0 || value > int64_t{1} << 62) {
    throw document.error(pointer, fmt::format("'{}' is not a count", key));
  }
  return value.get<int64_t>();
}

std::string text_of(const JsonDocument& document, const Json& object, const std::string& pointer,
                    const std::string& key) {
  const Json& value = member(document, object, pointer, key);
  if (!value.is_string()) throw document.error(pointer, fmt::format("'{}' is not a string", key));
  return value.get<std::string>();
}

}  // namespace

const FileRecord* CheckpointManifest::find(const std::string& name) const {
  const auto at = std::find_if(files.begin(), files.end(), [&](const FileRecord& file) { return file.name == name; });
  return at == files.end() ? nullptr : &*at;
}

std::string manifest_text(const CheckpointManifest& manifest) {
  Json root{{"format_version", kCheckpointFormatVersion},
            {"step", manifest.step},
            {"saved", manifest.saved},
            {"version", version()},
            {"files", Json::array()}};
  for (const FileRecord& file : manifest.files) {
    root["files"].push_back(Json{{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.xxh3}});
  }
  return json_text(root, 2) + "\n";
}

CheckpointManifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  const JsonDocument document(read_regular_file(path, kMaxFolderJson), path.string(), ErrorKind::format);
  const Json& root = document.root();
  const int64_t format = count_of(document, root, "", "format_version");
  if (format < 1 || format > kCheckpointFormatVersion) {
    throw document.error("/format_version", fmt::format("checkpoint format {} is not known to this version", format),
                         fmt::format("it reads 1 to {}", kCheckpointFormatVersion));
  }
  CheckpointManifest manifest;
  manifest.step = count_of(document, root, "", "step");
  manifest.saved = text_of(document, root, "", "saved");
  const Json& files = member(document, root, "", "files");
  if (!files.is_array()) throw document.error("/files", "'files' is not a list");
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string at = fmt::format("/files/{}", i);
    FileRecord file{text_of(document, files[i], at, "name"), count_of(document, files[i], at, "bytes"),
                    text_of(document, files[i], at, "xxh3")};
    if (file.name.empty() || file.name == "." || file.name == ".." || file.name.find('/') != std::string::npos) {
      throw document.error(at, fmt::format("'{}' is not a file name", file.name));
    }
    manifest.files.push_back(std::move(file));
  }
  for (const char* name : {kConfigName, kModelName, kTrainerName}) {
    if (manifest.find(name) == nullptr) throw document.error("/files", fmt::format("{} is not listed", name));
  }
  return manifest;
}

void check_sizes(const fs::path& folder, const CheckpointManifest& manifest) {
  for (const FileRecord& file : manifest.files) {
    const fs::path path = folder / file.name;
    std::error_code code;
    if (!fs::is_regular_file(path, code))
      throw Error(ErrorKind::format, "a file of this checkpoint is missing", path.string());
    const auto bytes = static_cast<int64_t>(fs::file_size(path, code));
    if (code || bytes != file.bytes) {
      throw Error(ErrorKind::format, fmt::format("damaged: {} bytes, the manifest says {}", bytes, file.bytes),
                  path.string());
    }
  }
}

fs::path checkpoints_folder(const std::string& run) {
  return fs::path(run) / "checkpoints";
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("step-{:08}", step);
}

std::optional<int64_t> checkpoint_step(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  int64_t step = 0;
  const auto [stop, code] = std::from_chars(begin, end, step);
  if (code != std::errc() || stop != end || step < 0 || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

}  // namespace keel::detail
