#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "keel/base/atomic_file.h"
#include "keel/base/json.h"
#include "keel/checkpoint/safetensors.h"
#include "keel/model/model_config_json.h"
#include "keel/model/parameters.h"
#include "support/numeric.h"

namespace keel::testing {

/// Writes config.json and model.safetensors with random weights, away from their initial values, into an existing
/// folder. `config` is resolved().
inline void write_model_folder(const std::string& folder, const ModelConfig& config, uint64_t seed,
                               const std::string& model_type = "keel") {
  const ParameterLayout layout = parameter_layout(config);
  Random random(seed);
  std::vector<std::vector<float>> values;
  for (const Parameter& p : layout.parameters) {
    values.push_back(random.normals(p.size, p.is_matrix() ? 0 : 1, p.is_matrix() ? 0.3 : 0.2));
  }
  std::vector<TensorSource> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    tensors.push_back(float_tensor(layout.parameters[i].name, layout.parameters[i].shape, values[i]));
  }
  (void)write_safetensors(folder + "/model.safetensors", tensors);
  write_file_atomically(folder + "/config.json", json_text(model_config_json(config, model_type), 2));
}

/// A small model with grouped heads and a vocabulary of 23 in the folder.
inline void write_small_model(const std::string& folder) {
  write_model_folder(folder,
                     resolved({.vocab_size = 23,
                               .hidden_size = 16,
                               .intermediate_size = 24,
                               .num_hidden_layers = 2,
                               .num_attention_heads = 4,
                               .num_key_value_heads = 2,
                               .residual_scheme = "keel"}),
                     1);
}

}  // namespace keel::testing
