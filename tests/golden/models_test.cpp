// Logits, loss and greedy continuations of small Hugging Face models of every family that this build reads, against
// float64 values from transformers (golden/models/README.md states the tolerance).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "keel/base/json.h"
#include "keel/inference/inference_model.h"
#include "keel/model/kv_cache.h"
#include "keel/model/model_config_json.h"
#include "support/test_device.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr double kLogitTolerance = 1e-4;

/// Folders of models: those beside this file (KEEL_GOLDEN_FOLDER where they have moved), the larger test data, and one that a peer has just written
/// (tests/peers/run.sh).
std::vector<fs::path> model_folders() {
  const char* moved = std::getenv("KEEL_GOLDEN_FOLDER");
  std::vector<fs::path> bases{fs::path(moved != nullptr ? moved : KEEL_GOLDEN_FOLDER) / "models"};
  if (const char* data = std::getenv("KEEL_TEST_DATA")) bases.push_back(fs::path(data) / "golden" / "models");
  if (const char* peer = std::getenv("KEEL_PEER_MODELS")) bases.push_back(peer);
  std::vector<fs::path> folders;
  for (const fs::path& base : bases) {
    if (!fs::exists(base)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(base)) {
      if (!fs::exists(entry.path() / "golden.json") || !fs::exists(entry.path() / "config.json")) continue;
      const Json config = read_json(entry.path() / "config.json", ErrorKind::format).root();
      if (config["model_type"] != "gpt2") folders.push_back(entry.path());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

/// Sequences of one length as a flat batch with targets: the next token, none after the last.
struct Sequences {
  std::vector<int32_t> tokens, targets, positions, cu_seqlens{0};
  std::vector<float> weights;

  explicit Sequences(const Json& ids) {
    for (const Json& sequence : ids) {
      for (size_t t = 0; t < sequence.size(); ++t) {
        const bool last = t + 1 == sequence.size();
        tokens.push_back(sequence[t]);
        targets.push_back(last ? 0 : sequence[t + 1].get<int32_t>());
        weights.push_back(last ? 0.0F : 1.0F);
        positions.push_back(static_cast<int32_t>(t));
      }
      cu_seqlens.push_back(static_cast<int32_t>(tokens.size()));
    }
  }
  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  HostBatch host() const {
    HostBatch batch;
    batch.tokens = {tokens.data(), {size()}};
    batch.targets = {targets.data(), {size()}};
    batch.positions = {positions.data(), {size()}};
    batch.weights = {weights.data(), {size()}};
    batch.cu_seqlens = {cu_seqlens.data(), {static_cast<int64_t>(cu_seqlens.size())}};
    return batch;
  }
};

class GoldenModel : public ::testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    golden_ = read_json(GetParam() / "golden.json", ErrorKind::format).root();
    const DecoderOptions options{
        .max_tokens = 96, .max_positions = 64, .cache_pages = 4, .page_size = 16, .logit_rows = 96};
    model_.emplace(ctx_, open_model_folder(GetParam()), options);
  }

  std::vector<float> logits_of(std::vector<int32_t> rows) {
    const int64_t K = static_cast<int64_t>(rows.size()), V = model_->config().vocab_size;
    std::vector<float> logits(K * V);
    model_->logits({rows.data(), {K}}, {logits.data(), {K, V}});
    return logits;
  }

  Context ctx_ = testing::test_context(2);
  Json golden_;
  std::optional<InferenceModel> model_;
};

TEST_P(GoldenModel, Logits) {
  const Sequences batch(golden_["input_ids"]);
  ASSERT_TRUE(model_->forward(batch.host()));
  const SafetensorsFile file(GetParam() / "golden.safetensors");
  const StoredTensor* in_double = file.find("logits_f64");
  const StoredTensor& stored = in_double != nullptr ? *in_double : *file.find("logits_f32");
  std::vector<double> expected(stored.elements);
  file.read(stored, std::span<double>(expected));
  const int64_t T = batch.size() / 2, kept = stored.shape[1];  // the last positions of each sequence
  std::vector<int32_t> rows;
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t t = T - kept; t < T; ++t) rows.push_back(static_cast<int32_t>(s * T + t));
  }
  const std::vector<float> logits = logits_of(rows);
  ASSERT_EQ(logits.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double difference = std::abs(logits[i] - expected[i]);
    ASSERT_TRUE(difference <= kLogitTolerance) << i << ": " << logits[i] << " " << expected[i];
    worst = std::max(worst, difference);
  }
  RecordProperty("worst_difference", std::to_string(worst));

  StepScalars scalars{};
  model_->loss(scalars);
  EXPECT_NEAR(scalars.loss_sum / scalars.weight_sum, golden_["mean_nll_nats_f64"].get<double>(), 1e-5);
}

TEST_P(GoldenModel, GreedyTokensThroughTheCache) {
  std::vector<int32_t> next = golden_["greedy"]["prompt"];
  KvPages pages(4, 16);
  const int64_t sequence = pages.create();
  std::vector<int32_t> generated;
  CachedBatch batch;
  while (generated.size() < 16) {
    batch.clear();
    ASSERT_TRUE(batch.add(pages, sequence, next));
    ASSERT_TRUE(model_->forward(batch.host()));
    const std::vector<float> logits = logits_of({static_cast<int32_t>(batch.tokens() - 1)});
    next = {static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())};
    generated.push_back(next[0]);
  }
  EXPECT_EQ(generated, golden_["greedy"]["new_tokens"].get<std::vector<int32_t>>());
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModel, ::testing::ValuesIn(model_folders()), [](const auto& info) {
  std::string name = info.param.parent_path().parent_path().filename().string() + "_" + info.param.filename().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace keel
