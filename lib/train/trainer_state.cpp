#include "keel/train/trainer_state.h"

#include <cmath>
#include <concepts>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "keel/base/error.h"

namespace keel {
namespace {

/// Calls field(key, member) for each field: one list writes and reads.
template <class State, class Field>
void for_fields(State& state, Field field) {
  field("step", state.step);
  field("tokens", state.tokens);
  field("data_position", state.data_position);
  field("seed", state.seed);
  field("batch_sequences", state.batch_sequences);
  field("micro_batch_sequences", state.micro_batch_sequences);
  field("processes", state.processes);
  field("seconds", state.seconds);
  field("startup_seconds", state.startup_seconds);
  field("validate_seconds", state.validate_seconds);
  field("sample_seconds", state.sample_seconds);
  field("save_seconds", state.save_seconds);
  field("validated", state.validated);
  field("sampled", state.sampled);
  field("loss", state.loss);
  field("grad_norm", state.grad_norm);
}

/// Reads one value after another into the members of a state.
struct Reader {
  const Json& object;
  std::string path;

  const Json* find(const char* key, const char* wanted, bool (Json::*is)() const noexcept) const {
    const auto found = object.find(key);
    if (found == object.end()) return nullptr;
    if (((*found).*is)()) return &*found;
    throw Error(ErrorKind::format, std::string("'") + key + "' is not " + wanted, path);
  }
  template <std::integral Count>
  void operator()(const char* key, Count& value) const {
    const Json* found = find(key, "a count", &Json::is_number_integer);
    if (found == nullptr) return;
    value = found->get<Count>();
    const bool negative = !found->is_number_unsigned() && found->get<int64_t>() < 0;
    if (negative || std::cmp_less(value, 0)) {
      throw Error(ErrorKind::format, std::string("'") + key + "' is not a count", path);
    }
  }
  void operator()(const char* key, double& value) const {
    if (const Json* found = find(key, "a number", &Json::is_number)) value = found->get<double>();
  }
  void operator()(const char* key, bool& value) const {
    if (const Json* found = find(key, "true or false", &Json::is_boolean)) value = found->get<bool>();
  }
};

struct Writer {
  Json& object;

  void operator()(const char* key, double value) const {
    if (std::isfinite(value)) object[key] = value;
  }
  template <class T>
  void operator()(const char* key, const T& value) const {
    object[key] = value;
  }
};

}  // namespace

Json trainer_state_json(const TrainerState& state) {
  Json json = Json::object();
  for_fields(state, Writer{json});
  if (state.val_loss) Writer{json}("val_loss", *state.val_loss);
  if (state.val_step) json["val_step"] = *state.val_step;
  return json;
}

TrainerState trainer_state(const Checkpoint& checkpoint) {
  const std::string path = checkpoint.path + "/trainer.json";
  if (!checkpoint.trainer.is_object()) throw Error(ErrorKind::format, "the trainer's state is not an object", path);
  const Reader reader{checkpoint.trainer, path};
  int64_t version = kCheckpointFormatVersion;
  reader("format_version", version);
  if (version != kCheckpointFormatVersion) {
    throw Error(ErrorKind::format, "format_version " + std::to_string(version) + " is not known to this version", path);
  }
  TrainerState state;
  for_fields(state, reader);
  if (state.step != checkpoint.step) {
    throw Error(ErrorKind::format,
                "step " + std::to_string(state.step) + " in a checkpoint of step " + std::to_string(checkpoint.step),
                path);
  }
  double val_loss = std::nan("");
  reader("val_loss", val_loss);
  if (!std::isnan(val_loss)) state.val_loss = val_loss;
  int64_t val_step = -1;
  reader("val_step", val_step);
  if (val_step >= 0) state.val_step = val_step;
  return state;
}

}  // namespace keel
