// Matrices kept as q8_0 and bf16 against transformers' logits with the weights of files of these types: those that
// llama.cpp's rounding made of the same models (golden/models/README.md), and a bf16 file.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <vector>

#include "keel/checkpoint/safetensors.h"
#include "keel/inference/inference_model.h"
#include "keel/model/decoder_ref.h"
#include "keel/model/kv_cache.h"
#include "keel/model/model_config_json.h"
#include "support/numeric.h"
#include "support/perturbation.h"
#include "support/test_device.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char *folder, *file, *tensor;
  WeightType type;
};
const Case kCases[] = {
    {"llama-spm512", "gguf", "logits_last8.llama-spm512.Q8_0.gguf", WeightType::q8_0},
    {"qwen2-gguf-src", "gguf", "logits_last8.qwen2.Q8_0.gguf", WeightType::q8_0},
    {"llama-tied-bf16", "llama-tied-bf16", "logits_f64", WeightType::bf16},
};

/// golden.safetensors' last 8 positions of a sequence of 48.
std::vector<double> last_logits(const fs::path& file, const std::string& tensor) {
  const SafetensorsFile golden(file);
  const StoredTensor& stored = *golden.find(tensor);
  std::vector<double> values(stored.elements);
  golden.read(stored, std::span<double>(values));
  if (stored.shape.size() == 2) return values;
  const int64_t V = stored.shape[2], end = stored.shape[1] * V;  // of the first sequence
  return {values.begin() + end - 8 * V, values.begin() + end};
}

std::vector<int32_t> tokens_of(int64_t vocab_size) {
  std::vector<int32_t> tokens(48);
  for (int64_t i = 0; i < 48; ++i) tokens[i] = static_cast<int32_t>((37 * i + 11) % vocab_size);
  return tokens;
}

/// The same logits by the reference in double, where `round` changes what a GPU keeps in bf16.
class Reference {
 public:
  explicit Reference(const ModelFolder& folder)
      : config_(parse_model_config(folder.config_text, folder.config_path)), layout_(parameter_layout(config_)) {
    std::vector<float> weights(layout_.size);
    std::vector<TensorTarget> targets;
    for (const Parameter& p : layout_.parameters) {
      targets.push_back({p.name, p.shape, {weights.data() + p.offset, static_cast<size_t>(p.size)}});
    }
    folder.tensors.read(targets, config_.tie_word_embeddings ? "lm_head.weight" : "");
    weights_.assign(weights.begin(), weights.end());
    batch_ = {.tokens = tokens_of(config_.vocab_size), .cu_seqlens = {0, 48}};
    for (int32_t i = 0; i < 48; ++i) batch_.positions.push_back(i);
  }

  std::vector<double> logits(const std::function<void(std::vector<double>&)>& round = {}) const {
    const reference::Decoder<double> decoder(config_, layout_, weights_, batch_, round);
    std::vector<double> x = decoder.embedded();
    for (int64_t l = 0; l < config_.sublayers(); ++l) x = decoder.sublayer(l, x).next;
    x = decoder.head_input(x);
    const int64_t d = config_.hidden_size;
    std::vector<double> logits;
    for (int64_t n = 40; n < 48; ++n) {
      for (int64_t v = 0; v < config_.vocab_size; ++v) {
        const double* row = weights_.data() + layout_.at(layout_.head).offset + v * d;
        logits.push_back(std::inner_product(row, row + d, x.data() + n * d, 0.0));
      }
    }
    return logits;
  }

 private:
  ModelConfig config_;
  ParameterLayout layout_;
  std::vector<double> weights_;
  reference::DecoderBatch batch_;
};

/// How far off bf16 may be from `exact` (support/perturbation.h).
double tolerance_of(const Reference& reference, const std::vector<double>& exact) {
  testing::Deviation deviation;
  for (int run = 0; run < testing::kPerturbedRuns; ++run) {
    deviation.add(testing::distance(reference.logits(testing::Perturbation(static_cast<uint64_t>(run))), exact));
  }
  return deviation.tolerance();
}

/// Logits of the last 8 of 48 tokens, in passes of `piece` tokens.
std::vector<float> logits_of(InferenceModel& model, int64_t piece) {
  const int64_t V = model.config().vocab_size;
  const std::vector<int32_t> tokens = tokens_of(V);
  KvPages pages(4, 16);
  const int64_t sequence = pages.create();
  std::vector<float> logits;
  CachedBatch batch;
  for (int64_t begin = 0; begin < 48; begin += piece) {
    batch.clear();
    if (!batch.add(pages, sequence, std::span(tokens).subspan(begin, piece)) || !model.forward(batch.host())) return {};
    std::vector<int32_t> rows;
    for (int64_t i = std::max<int64_t>(begin, 40); i < begin + piece; ++i) {
      rows.push_back(static_cast<int32_t>(i - begin));
    }
    const auto K = static_cast<int64_t>(rows.size());
    std::vector<float> part(K * V);
    if (K > 0) model.logits({rows.data(), {K}}, {part.data(), {K, V}});
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

TEST(WeightTypes, GiveTheLogitsOfFilesOfTheirType) {
  const char* data = std::getenv("KEEL_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "KEEL_TEST_DATA is not set";
  const fs::path models = fs::path(data) / "golden" / "models";
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.folder);
    const auto expected = last_logits(models / c.file / "golden.safetensors", c.tensor);
    Context ctx = testing::test_context(2);
    const DecoderOptions options{
        .max_tokens = 48, .max_positions = 64, .cache_pages = 4, .page_size = 16, .logit_rows = 8};
    InferenceModel model(ctx, open_model_folder((models / c.folder).string()), options, {}, c.type);
    // A GPU computes with bf16 then.
    const bool in_bf16 = c.type == WeightType::bf16 && testing::test_device();
    double tolerance = 0;
    if (in_bf16) {
      const Reference reference(open_model_folder((models / c.folder).string()));
      testing::expect_close(
          reference.logits(), expected, [](int64_t) { return 1e-4; }, "reference");
      tolerance = tolerance_of(reference, expected);
    }
    for (const int64_t piece : {48, 16, 6, 1}) {
      const std::vector<float> logits = logits_of(model, piece);
      ASSERT_EQ(logits.size(), expected.size());
      if (in_bf16) {
        const double off = testing::distance({logits.begin(), logits.end()}, expected);
        // Less than a thousandth would be fp32.
        EXPECT_TRUE(off > tolerance / 1000 && off <= tolerance) << off << " off, rounding may do " << tolerance;
        continue;
      }
      int64_t wrong = 0;
      for (size_t i = 0; i < logits.size(); ++i) wrong += std::abs(logits[i] - expected[i]) <= 1e-4 ? 0 : 1;
      EXPECT_EQ(wrong, 0) << "in passes of " << piece;
    }
  }
}

}  // namespace
}  // namespace keel
