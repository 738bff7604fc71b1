#include "keel/convert/convert.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/files.h"
#include "keel/base/signals.h"
#include "keel/checkpoint/checkpoint.h"
#include "keel/checkpoint/float16.h"
#include "keel/checkpoint/hashed_file.h"
#include "keel/convert/modeling_keel.h"
#include "keel/model/model_config_json.h"
#include "keel/model/parameters.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

float element(StoredType type, std::span<const std::byte> bytes, int64_t i) {
  if (type == StoredType::F32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, bytes.data() + 2 * i, 2);
  return type == StoredType::F16 ? widen_f16(half) : widen_bf16(half);
}

/// Elements first .. of the stored tensor as `type`, as many as fit `out`.
void narrow(const TensorSet::Place& place, StoredType type, int64_t first, std::span<std::byte> out) {
  throw_if_stopped();
  const auto bytes = place.file->data(*place.tensor);
  const int64_t size = bits(type) / 8, count = static_cast<int64_t>(out.size()) / size;
  for (int64_t i = 0; i < count; ++i) {
    const float value = element(place.tensor->type, bytes, first + i);
    if (type == StoredType::F32) {
      std::memcpy(out.data() + 4 * i, &value, 4);
      continue;
    }
    const uint16_t half = type == StoredType::F16 ? narrow_f16(value) : narrow_bf16(value);
    if (std::isfinite(value) && !std::isfinite(type == StoredType::F16 ? widen_f16(half) : widen_bf16(half))) {
      throw Error(ErrorKind::format,
                  fmt::format("tensor '{}' has the value {}, beyond what {} can hold", place.tensor->name, value,
                              to_string(type)),
                  place.file->path(), "choose another --dtype");
    }
    std::memcpy(out.data() + 2 * i, &half, 2);
  }
}

TensorSource source_of(const std::string& name, const TensorSet::Place& place, StoredType type) {
  TensorSource source{.name = name, .type = type, .shape = place.tensor->shape};
  if (type == place.tensor->type) {
    source.parts = {place.file->data(*place.tensor)};
  } else {
    source.produce = [place, type](int64_t first, std::span<std::byte> out) { narrow(place, type, first, out); };
  }
  return source;
}

int64_t bytes_of(const TensorSource& source) {
  int64_t elements = 1;
  for (int64_t extent : source.shape) elements *= extent;
  return elements * bits(source.type) / 8;
}

/// Whole tensors in their order, each shard as full as the limit allows.
std::vector<std::vector<TensorSource>> shards_of(std::vector<TensorSource> sources, int64_t max_bytes) {
  std::vector<std::vector<TensorSource>> shards(1);
  int64_t room = max_bytes;
  for (TensorSource& source : sources) {
    const int64_t bytes = bytes_of(source);
    if (bytes > room && !shards.back().empty()) {
      shards.emplace_back();
      room = max_bytes;
    }
    room -= bytes;
    shards.back().push_back(std::move(source));
  }
  return shards;
}

/// A file written and hashed, without a temporary name: its folder has one.
FileRecord put_file(const fs::path& folder, const std::string& name, std::string_view text) {
  detail::HashedFile file((folder / name).string());
  file.write(text);
  return file.finish();
}

void write_weights(const fs::path& folder, std::vector<TensorSource> sources, const ConvertOptions& options,
                   const std::function<void(int64_t, int64_t)>& tick, ConvertedModel& result) {
  int64_t total = 0, done = 0;
  for (const TensorSource& source : sources) total += bytes_of(source);
  require_free_space(folder.string(), total, "the model");
  const auto progress = [&](int64_t bytes) {
    throw_if_stopped();
    done += bytes;
    if (tick) tick(std::min(done, total), total);
  };
  const auto shards = shards_of(std::move(sources), options.max_shard_bytes);
  Json map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? "model.safetensors"
                                                : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    result.files.push_back(write_safetensors((folder / name).string(), shards[i], progress));
    for (const TensorSource& source : shards[i]) map.push_back({source.name, name});
  }
  if (shards.size() == 1) return;
  const Json index{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  result.files.push_back(put_file(folder, "model.safetensors.index.json", json_text(index, 2) + "\n"));
}

const char* torch_name(StoredType type) {
  return type == StoredType::F16 ? "float16" : type == StoredType::BF16 ? "bfloat16" : "float32";
}

/// Keys that say how the weights are stored, and those of an export that is run by its own Python code.
constexpr std::array kStorageKeys{"auto_map", "residual_wiring", "final_norm_type", "torch_dtype", "dtype"};

bool is_among(std::string_view key, std::span<const char* const> keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

Json config_json(const ModelFolder& source, const ModelConfig& config, const std::string& model_type,
                 const ConvertOptions& options, StoredType stored) {
  const Json before = parse_json(source.config_text, source.config_path, ErrorKind::format);
  const bool had_dtype = before.contains("dtype");
  const Json known = model_config_json(config, "keel");
  Json json = model_config_json(config, model_type);
  for (const auto& [key, value] : before.items()) {
    const bool is_option = model_type != "keel" && is_among(key, kSchemeOptions);
    const bool own = known.contains(key) || is_among(key, kStorageKeys) || is_option;
    if (!own && !json.contains(key)) json[key] = value;
  }
  json["torch_dtype"] = torch_name(stored);
  if (had_dtype) json["dtype"] = torch_name(stored);
  if (!json.contains("bos_token_id"))
    json["bos_token_id"] = options.special.bos_id ? Json(*options.special.bos_id) : Json();
  if (!json.contains("eos_token_id"))
    json["eos_token_id"] = options.special.eos_id ? Json(*options.special.eos_id) : Json();
  if (!json.contains("transformers_version")) json["transformers_version"] = kTransformersVersion;
  if (model_type == "keel" && options.format == ModelFormat::hugging_face) add_modeling_keys(config, json);
  return json;
}

}  // namespace

ModelTensors model_tensors(const ModelFolder& folder) {
  ModelTensors tensors{.config = parse_model_config(folder.config_text, folder.config_path), .names = {}, .places = {}};
  std::vector<TensorTarget> targets;
  for (const Parameter& p : parameter_layout(tensors.config).parameters) {
    targets.push_back({p.name, p.shape, {}});
    tensors.names.push_back(p.name);
  }
  tensors.places = folder.tensors.match(targets, tensors.config.tie_word_embeddings ? "lm_head.weight" : "");
  return tensors;
}

ConvertedModel convert_model(const ModelFolder& source, const std::string& folder, const ConvertOptions& options,
                             const std::function<void(int64_t, int64_t)>& tick) {
  const ModelTensors tensors = model_tensors(source);
  ConvertedModel result;
  result.model_type = options.format == ModelFormat::keel ? "keel" : hugging_face_family(tensors.config);
  result.tensors = static_cast<int64_t>(tensors.names.size());
  result.parameters = count_parameters(tensors.config).total;
  std::vector<TensorSource> sources;
  for (size_t i = 0; i < tensors.names.size(); ++i) {
    const StoredType type = options.dtype.value_or(tensors.places[i].tensor->type);
    sources.push_back(source_of(tensors.names[i], tensors.places[i], type));
  }
  const StoredType embedding_type = sources.front().type;
  write_weights(folder, std::move(sources), options, tick, result);
  std::vector<Companion> companions = companions_of(source);
  if (options.format == ModelFormat::hugging_face) {
    for (Companion& file : missing_companions(companions, options.special, tensors.config.max_position_embeddings)) {
      companions.push_back(std::move(file));
    }
  }
  for (const Companion& file : companions) result.files.push_back(put_file(folder, file.name, file.content));
  const Json config = config_json(source, tensors.config, result.model_type, options, embedding_type);
  if (config.contains("auto_map")) {
    result.files.push_back(put_file(folder, "configuration_keel.py", configuration_keel_py()));
    result.files.push_back(put_file(folder, "modeling_keel.py", modeling_keel_py()));
  }
  result.files.push_back(put_file(folder, "config.json", json_text(config, 2) + "\n"));
  return result;
}

int64_t verify_conversion(const ModelFolder& source, const ModelFolder& converted) {
  const ModelTensors before = model_tensors(source), after = model_tensors(converted);
  if (before.names != after.names) {
    throw Error(ErrorKind::format, "the converted model has other tensors than the source", converted.path);
  }
  for (size_t i = 0; i < before.names.size(); ++i) {
    const TensorSet::Place& stored = after.places[i];
    const auto bytes = stored.file->data(*stored.tensor);
    std::vector<std::byte> piece(std::min<size_t>(bytes.size(), size_t{1} << 22));
    for (size_t at = 0; at < bytes.size(); at += piece.size()) {
      const std::span<std::byte> wanted(piece.data(), std::min(piece.size(), bytes.size() - at));
      narrow(before.places[i], stored.tensor->type, static_cast<int64_t>(at) * 8 / bits(stored.tensor->type), wanted);
      if (std::memcmp(wanted.data(), bytes.data() + at, wanted.size()) != 0) {
        throw Error(ErrorKind::format, fmt::format("tensor '{}' is not what the source has", before.names[i]),
                    stored.file->path());
      }
    }
  }
  return static_cast<int64_t>(before.names.size());
}

bool keeps_values(const ModelFolder& source, const ModelFolder& converted) {
  const ModelTensors before = model_tensors(source), after = model_tensors(converted);
  return std::equal(before.places.begin(), before.places.end(), after.places.begin(), after.places.end(),
                    [](const TensorSet::Place& from, const TensorSet::Place& to) {
                      return to.tensor->type == from.tensor->type || to.tensor->type == StoredType::F32;
                    });
}

}  // namespace keel
