#include "keel/train/profile_line.h"

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace keel {
namespace {

/// Collects the numbers of a line.
class Line {
 public:
  Line(int64_t step, int64_t tokens) {
    json_["step"] = step;
    json_["tokens"] = tokens;
  }

  void number(const std::string& key, double value) { json_[key] = checked(value, "/" + pointer_part(key)); }
  void element(const std::string& key, double value) {
    Json& list = array(json_, key);
    list.push_back(checked(value, "/" + pointer_part(key) + "/" + std::to_string(list.size())));
  }
  /// Of the tensor `name` of a block; blocks before it that have none get null.
  void of_block(const std::string& key, const std::string& name, int64_t block, double value) {
    Json& list = array(json_[key], name);
    while (std::ssize(list) < block) list.push_back(nullptr);
    list.push_back(checked(value, "/" + key + "/" + pointer_part(name) + "/" + std::to_string(block)));
  }
  void named(const std::string& key, const std::string& name, double value) {
    json_[key][name] = checked(value, "/" + key + "/" + pointer_part(name));
  }
  /// Every list of `key` as long as there are blocks.
  void fill_up(const std::string& key, int64_t blocks) {
    for (auto& [name, list] : json_[key].items()) {
      while (std::ssize(list) < blocks) list.push_back(nullptr);
    }
  }

  Json take() {
    if (!non_finite_.empty()) json_["non_finite"] = std::move(non_finite_);
    return std::move(json_);
  }

 private:
  static Json& array(Json& object, const std::string& key) {
    Json& list = object[key];
    if (list.is_null()) list = Json::array();
    return list;
  }

  Json checked(double value, const std::string& pointer) {
    if (std::isfinite(value)) return value;
    non_finite_[pointer] = std::isnan(value) ? "nan" : (value > 0 ? "inf" : "-inf");
    return nullptr;
  }

  Json json_ = Json::object(), non_finite_ = Json::object();
};

}  // namespace

Json profile_line(int64_t step, int64_t tokens, const GradientProfile& profile) {
  constexpr const char* kByBlock = "sublayer_weight_gradient_norm";
  constexpr const char* kOfModel = "weight_gradient_norm";
  Line line(step, tokens);
  for (const SublayerProfile& s : profile.sublayers) line.element("stream_gradient_norm", s.stream_gradient_norm);
  line.element("stream_gradient_norm", profile.final_stream_gradient_norm);
  for (const SublayerProfile& s : profile.sublayers) line.element("stream_rms", s.stream_rms);
  line.element("stream_rms", profile.final_stream_rms);
  for (const SublayerProfile& s : profile.sublayers) {
    line.element("branch_rms", s.branch_rms);
    line.element("stream_branch_cosine", s.stream_branch_cosine);
    line.element("skip_gain", s.skip_gain);
  }
  line.number("log_skip_product", profile.log_skip_product);
  const int64_t count = std::ssize(profile.sublayers);
  for (int64_t l = 0; l < count; ++l) {
    for (const WeightGradientNorm& norm : profile.sublayers[l].weight_gradient_norms) {
      line.of_block(kByBlock, norm.name, l / 2, norm.norm);
    }
  }
  line.fill_up(kByBlock, count / 2);
  for (const WeightGradientNorm& norm : profile.weight_gradient_norms) line.named(kOfModel, norm.name, norm.norm);
  return line.take();
}

}  // namespace keel
