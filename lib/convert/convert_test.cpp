#include "keel/convert/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "keel/base/files.h"
#include "keel/convert/model_info.h"
#include "keel/convert/modeling_keel.h"
#include "support/errors.h"
#include "support/model_files.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

ModelConfig small_config() {
  return resolved({.vocab_size = 11,
                   .hidden_size = 8,
                   .intermediate_size = 6,
                   .num_hidden_layers = 2,
                   .num_attention_heads = 2,
                   .max_position_embeddings = 16});
}

class Convert : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"from", "to"}) make_directories(dir_ / name);
    testing::write_model_folder((dir_ / "from").string(), small_config(), 3);
  }
  ModelFolder source() const { return open_model_folder((dir_ / "from").string()); }
  ModelFolder result() const { return open_model_folder((dir_ / "to").string()); }
  ConvertedModel convert(const ConvertOptions& options = {}) const {
    return convert_model(source(), (dir_ / "to").string(), options);
  }

  testing::TempDir dir_;
};

TEST_F(Convert, EveryTensorIsCompared) {
  const ConvertedModel model = convert();
  EXPECT_EQ(verify_conversion(source(), result()), model.tensors);
  EXPECT_EQ(model_info(result())["config"], model_info(source())["config"]);
}

TEST(ModelingKeys, WiringWithoutDefaults) {
  ModelConfig config = small_config();
  config.residual_scheme = "hybrid_star";
  config.norm_type = NormKind::ln;
  Json json;
  add_modeling_keys(config, json);
  EXPECT_EQ(json["residual_wiring"], Json::parse(R"([{"inner": "ln", "qkv": "qkv_head"}, {"inner": "ln"},
                                                     {"outer": "ln", "qkv": "qkv_head"}, {}])"));
  EXPECT_EQ(json["final_norm"], true);
  EXPECT_EQ(json["final_norm_type"], "ln");
  config.residual_scheme = "lns";
  config.norm_type.reset();
  add_modeling_keys(config, json);
  const double half = std::pow(2.0, -0.5);
  EXPECT_EQ(json["residual_wiring"], Json({{{"inner", "rms"}},
                                           {{"inner", "rms"}},
                                           {{"inner", "rms"}, {"ns", half}},
                                           {{"inner", "rms"}, {"ns", half}}}));
  config.residual_scheme = "keel";
  config.learnable_alpha = true;
  json = Json::object();
  add_modeling_keys(config, json);
  EXPECT_EQ(json["residual_wiring"][2],
            Json({{"inner", "rms"}, {"outer", "rms"}, {"a", 4.0}, {"skip_scale", "exponential"}}));
  EXPECT_FALSE(json.contains("final_norm_type"));
}

TEST_F(Convert, KnowsWhichTypesKeepEveryValue) {
  const auto keeps = [&](std::optional<StoredType> dtype) {
    convert({.dtype = dtype});
    return keeps_values(source(), result());
  };
  EXPECT_TRUE(keeps({}));
  EXPECT_TRUE(keeps(StoredType::F32));
  EXPECT_FALSE(keeps(StoredType::BF16));
  const ModelFolder narrow = result();
  EXPECT_TRUE(keeps_values(narrow, narrow));
  EXPECT_TRUE(keeps_values(narrow, source()));
  EXPECT_FALSE(keeps(StoredType::F16));
  EXPECT_FALSE(keeps_values(narrow, result()));
}

TEST_F(Convert, VerifyNamesTheTensorThatDiffers) {
  for (const std::optional<StoredType> dtype : {std::optional<StoredType>(), std::optional(StoredType::BF16)}) {
    convert({.dtype = dtype});
    const ModelFolder converted = result();
    const TensorSet::Place place = *converted.tensors.find("model.layers.1.mlp.up_proj.weight");
    int64_t data_bytes = 0;
    for (const StoredTensor& tensor : place.file->tensors()) data_bytes = std::max(data_bytes, tensor.end);
    std::fstream file(place.file->path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(place.file->bytes() - data_bytes + place.tensor->end - 1);
    file.put('\x11');
    file.close();
    testing::expect_error(ErrorKind::format, "model.layers.1.mlp.up_proj.weight",
                          [&] { (void)verify_conversion(source(), result()); });
  }
}

TEST_F(Convert, FilesThatTransformersMissesAreWritten) {
  const SpecialTokens special{.bos_id = 1, .eos_id = 2, .bos = "<s>", .eos = "</s>", .unk = "", .adds_bos = true};
  EXPECT_EQ(missing_companions({}, {}, 16).size(), 0U);
  const auto files = missing_companions({{"tokenizer.model", ""}}, special, 16);
  ASSERT_EQ(files.size(), 2U);
  const Json generation = parse_json(files[0].content, files[0].name, ErrorKind::format);
  EXPECT_EQ(generation["bos_token_id"], 1);
  EXPECT_EQ(generation["eos_token_id"], 2);
  const Json tokenizer = parse_json(files[1].content, files[1].name, ErrorKind::format);
  EXPECT_EQ(files[1].name, "tokenizer_config.json");
  EXPECT_EQ(tokenizer["add_bos_token"], true);
  EXPECT_EQ(tokenizer["eos_token"], "</s>");
  EXPECT_FALSE(tokenizer.contains("unk_token"));
  EXPECT_FALSE(tokenizer.contains("tokenizer_class"));
  EXPECT_NE(missing_companions({{"tokenizer.json", ""}}, special, 16)[1].content.find("PreTrainedTokenizerFast"),
            std::string::npos);
  EXPECT_EQ(missing_companions({{"tokenizer.json", ""}, {"tokenizer_config.json", ""}, {"generation_config.json", ""}},
                               special, 16)
                .size(),
            0U);
}

}  // namespace
}  // namespace keel
