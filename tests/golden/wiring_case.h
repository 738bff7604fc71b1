#pragma once

// What the tests of golden/wiring share: its cases, their models and batches.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "keel/base/json.h"
#include "keel/checkpoint/safetensors.h"
#include "keel/model/flat_batch.h"
#include "keel/model/model_config.h"
#include "keel/model/parameters.h"

namespace keel::wiring_testing {

namespace fs = std::filesystem;

inline fs::path folder() {
  const char* data = std::getenv("KEEL_TEST_DATA");
  return data == nullptr ? fs::path() : fs::path(data) / "golden" / "wiring";
}

/// Cases by name, or one empty name where the test data is not there (the test then skips).
inline std::vector<std::string> case_names() {
  std::vector<std::string> names;
  if (folder().empty() || !fs::exists(folder())) return {""};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() != ".json") continue;
    const Json json = read_json(entry.path(), ErrorKind::format).root();
    if (!json.is_object() || !json.contains("scheme")) continue;
    names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline ModelConfig config_of(const Json& c, int64_t T) {
  ModelConfig m;
  m.vocab_size = c["vocab"];
  m.hidden_size = c["width"];
  m.intermediate_size = c["ffn"];
  m.num_hidden_layers = c["blocks"];
  m.num_attention_heads = c["heads"];
  m.num_key_value_heads = c["kv_heads"];
  m.rms_norm_eps = c["eps"];
  m.rope_theta = c["theta"];
  m.tie_word_embeddings = c["tied"];
  m.residual_scheme = c["scheme"];
  if (!c["alpha"].is_null()) m.residual_alpha = c["alpha"].get<double>();
  if (m.residual_scheme == "mix") m.mix_fraction = c["mix_fraction"].get<double>();
  m.admin_frozen = c["admin_frozen"].get<bool>();
  m.final_norm = c["final_norm"].get<bool>();
  m.max_position_embeddings = T;
  return resolved(m);
}

/// The batches of a case as flat batches.
struct CaseBatch {
  std::vector<int32_t> tokens, targets, positions, cu_seqlens;
  std::vector<float> weights;

  CaseBatch(const SafetensorsFile& data, int64_t index, bool packed, bool masked) {
    const StoredTensor& stored = *data.find("tokens");
    const int64_t B = stored.shape[1], T = stored.shape[2] - 1;
    const auto* all = reinterpret_cast<const int32_t*>(data.data(stored).data()) + index * B * (T + 1);
    const auto* docs = reinterpret_cast<const int32_t*>(data.data(*data.find("doc_ids")).data()) + index * B * T;
    const auto* mask = reinterpret_cast<const uint8_t*>(data.data(*data.find("loss_mask")).data()) + index * B * T;
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t t = 0; t < T; ++t) {
        const bool starts = t == 0 || (packed && docs[b * T + t] != docs[b * T + t - 1]);
        if (starts) cu_seqlens.push_back(static_cast<int32_t>(tokens.size()));
        positions.push_back(starts ? 0 : positions.back() + 1);
        tokens.push_back(all[b * (T + 1) + t]);
        targets.push_back(all[b * (T + 1) + t + 1]);
        weights.push_back(masked ? static_cast<float>(mask[b * T + t]) : 1.0F);
      }
    }
    cu_seqlens.push_back(static_cast<int32_t>(tokens.size()));
  }

  template <class T>
  static View<const T, 1> view(const std::vector<T>& v) {
    return {v.data(), {static_cast<int64_t>(v.size())}};
  }
  FlatBatch flat() const {
    return {.tokens = view(tokens),
            .targets = view(targets),
            .positions = view(positions),
            .weights = view(weights),
            .cu_seqlens = view(cu_seqlens)};
  }
};

inline double norm_of(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

/// A case's files.
struct CaseFiles {
  explicit CaseFiles(const std::string& name)
      : json(read_json(folder() / (name + ".json"), ErrorKind::format).root()),
        matrices(file("matrices")),
        small(file("small")),
        data(file("data")),
        expect(file("expect")),
        sequences(data.find("tokens")->shape[1]),
        length(data.find("tokens")->shape[2] - 1),
        config(config_of(json["config"], length)),
        layout(parameter_layout(config)) {}

  std::string file(const char* kind) const { return (folder() / json["files"][kind].get<std::string>()).string(); }
  CaseBatch batch(int64_t index) const {
    return CaseBatch(data, index, json["options"]["packed"], json["options"]["masked"]);
  }
  bool is_deep() const { return json["options"].value("deep", false); }

  /// The start of the case to `weights`, [layout.size].
  void read_weights(std::span<float> weights) const {
    ASSERT_EQ(layout.parameters.size(), json["parameters"].size());
    for (const Parameter& parameter : layout.parameters) {
      ASSERT_TRUE(json["parameters"].contains(parameter.name)) << parameter.name;
      const SafetensorsFile& file = small.find(parameter.name) != nullptr ? small : matrices;
      const StoredTensor* stored = file.find(parameter.name);
      ASSERT_NE(stored, nullptr) << parameter.name;
      ASSERT_EQ(stored->shape, parameter.shape) << parameter.name;
      file.read(*stored, weights.subspan(parameter.offset, parameter.size));
    }
  }

  Json json;
  SafetensorsFile matrices, small, data, expect;
  int64_t sequences, length;  ///< of a batch
  ModelConfig config;
  ParameterLayout layout;
};

}  // namespace keel::wiring_testing
