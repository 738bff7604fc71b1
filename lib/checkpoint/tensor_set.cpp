#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/json.h"
#include "keel/checkpoint/model_folder.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

/// "3 tensors are missing: a, b, c" with the first few names.
std::string list_names(const std::vector<std::string>& names, const std::string& what) {
  constexpr size_t kShown = 4;
  std::string text = fmt::format("{} {} {}: ", names.size(), names.size() == 1 ? "tensor is" : "tensors are", what);
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kShown ? text + ", ..." : text;
}

/// Buffers that old files hold and no model wants.
bool is_legacy_buffer(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq");
}

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

struct WeightMap {
  std::map<std::string, std::string> file_of;  ///< by tensor
  std::string path;
};

WeightMap read_index(const std::string& path) {
  const JsonDocument document(read_regular_file(path, kMaxFolderJson), path, ErrorKind::format);
  const Json& root = document.root();
  if (!root.is_object() || !root.contains("weight_map") || !root.at("weight_map").is_object()) {
    throw document.error("", "no weight_map in this index");
  }
  WeightMap map{{}, path};
  for (const auto& [tensor, file] : root.at("weight_map").items()) {
    const std::string pointer = "/weight_map/" + pointer_part(tensor);
    if (!file.is_string())
      throw document.error(pointer, fmt::format("the file of tensor '{}' is not a string", tensor));
    const auto name = file.get<std::string>();
    if (!is_plain_file_name(name)) {
      throw document.error(pointer, fmt::format("the file '{}' of tensor '{}' is not in this folder", name, tensor));
    }
    map.file_of.emplace(tensor, name);
  }
  return map;
}

/// The index and the files must agree both ways.
void check_index(const WeightMap& map, const std::map<std::string, SafetensorsFile>& files) {
  for (const auto& [tensor, name] : map.file_of) {
    if (files.at(name).find(tensor) == nullptr) {
      throw Error(ErrorKind::format, fmt::format("tensor '{}' is not in {}, where the index says", tensor, name),
                  map.path);
    }
  }
  for (const auto& [name, file] : files) {
    for (const StoredTensor& tensor : file.tensors()) {
      const auto entry = map.file_of.find(tensor.name);
      if (entry == map.file_of.end()) {
        throw Error(ErrorKind::format, fmt::format("tensor '{}' is not in the index of its folder", tensor.name),
                    file.path());
      }
      if (entry->second != name) {
        throw Error(ErrorKind::format,
                    fmt::format("tensor '{}' is here and in {}, where the index says", tensor.name, entry->second),
                    file.path());
      }
    }
  }
}

}  // namespace

void TensorSet::add(const SafetensorsFile& file) {
  for (const StoredTensor& tensor : file.tensors()) {
    const auto [entry, is_new] = places_.emplace(tensor.name, std::pair(files_.size(), &tensor));
    if (!is_new) {
      throw Error(ErrorKind::format,
                  fmt::format("tensor '{}' is here and in {}", tensor.name, files_[entry->second.first].path()),
                  file.path());
    }
  }
  files_.push_back(file);
}

TensorSet TensorSet::open_files(const std::vector<std::string>& paths) {
  TensorSet set;
  for (const std::string& path : paths) set.add(SafetensorsFile(path));
  return set;
}

TensorSet TensorSet::open_file(const std::string& path) {
  return open_files({path});
}

TensorSet TensorSet::open_folder(const std::string& folder) {
  const fs::path index = fs::path(folder) / "model.safetensors.index.json";
  const fs::path single = fs::path(folder) / "model.safetensors";
  if (!is_there(index)) return open_file(single.string());
  const WeightMap map = read_index(index.string());
  std::map<std::string, SafetensorsFile> files;
  for (const auto& [tensor, name] : map.file_of) {
    if (files.contains(name)) continue;
    const std::string path = (fs::path(folder) / name).string();
    if (!is_there(path)) {
      throw Error(ErrorKind::io, fmt::format("the file of tensor '{}' is missing", tensor), path);
    }
    files.emplace(name, SafetensorsFile(path));
  }
  check_index(map, files);
  TensorSet set;
  for (const auto& [name, file] : files) set.add(file);
  if (!files.contains("model.safetensors") && is_there(single)) set.ignored_.push_back(single.string());
  return set;
}

std::optional<TensorSet::Place> TensorSet::find(std::string_view name) const {
  const auto entry = places_.find(name);
  if (entry == places_.end()) return std::nullopt;
  return Place{&files_[entry->second.first], entry->second.second};
}

std::vector<std::string> TensorSet::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

std::string TensorSet::stand_in(const std::string& tied_head, const std::string& embedding) const {
  const auto head = tied_head.empty() ? std::nullopt : find(tied_head);
  const auto matrix = find(embedding);
  if (!head) return embedding;
  if (!matrix) return tied_head;
  const auto a = head->file->data(*head->tensor);
  const auto b = matrix->file->data(*matrix->tensor);
  if (head->tensor->type != matrix->tensor->type || head->tensor->shape != matrix->tensor->shape ||
      std::memcmp(a.data(), b.data(), a.size()) != 0) {
    throw Error(ErrorKind::format, fmt::format("{} and {} differ although the embedding is tied", tied_head, embedding),
                head->file->path());
  }
  return embedding;
}

std::vector<TensorSet::Place> TensorSet::match(std::span<const TensorTarget> targets, const std::string& tied_head,
                                               const std::string& embedding) const {
  const std::string place = files_.empty() ? "" : files_[0].path();
  const std::string stored_embedding = stand_in(tied_head, embedding);
  std::vector<std::string> missing, extra;
  std::vector<Place> matched;
  std::set<std::string_view> wanted;
  for (const TensorTarget& target : targets) {
    const auto stored = find(target.name == embedding ? stored_embedding : target.name);
    if (!stored) {
      missing.push_back(target.name);
      continue;
    }
    if (stored->tensor->shape != target.shape) {
      throw Error(ErrorKind::shape,
                  fmt::format("tensor '{}' has shape {}, expected {}", stored->tensor->name,
                              shape_text(stored->tensor->shape), shape_text(target.shape)),
                  stored->file->path());
    }
    if (!is_readable_float(stored->tensor->type)) {
      throw Error(ErrorKind::format,
                  fmt::format("tensor '{}' has dtype {}, wanted F32, F16 or BF16", stored->tensor->name,
                              to_string(stored->tensor->type)),
                  stored->file->path());
    }
    if (!wanted.insert(target.name).second) throw Error(ErrorKind::internal, "tensor wanted twice: " + target.name);
    matched.push_back(*stored);
  }
  if (!missing.empty()) throw Error(ErrorKind::format, list_names(missing, "missing"), place);
  for (const auto& [name, entry] : places_) {
    if (!wanted.contains(name) && name != tied_head && !is_legacy_buffer(name)) extra.push_back(name);
  }
  if (!extra.empty()) throw Error(ErrorKind::format, list_names(extra, "not part of this model"), place);
  return matched;
}

void TensorSet::read(std::span<const TensorTarget> targets, const std::string& tied_head,
                     const std::string& embedding) const {
  const std::vector<Place> places = match(targets, tied_head, embedding);
  for (size_t i = 0; i < targets.size(); ++i) {
    places[i].file->read(*places[i].tensor, targets[i].values);
    places[i].file->release(*places[i].tensor);
  }
}

}  // namespace keel
