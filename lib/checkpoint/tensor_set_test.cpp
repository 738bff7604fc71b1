#include <filesystem>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/checkpoint/model_folder.h"
#include "support/scratch.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define EXPECT_HAS(text, part) EXPECT_TRUE(has(text, part)) << (text)

struct Named {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

void write_tensors(const std::string& path, const std::vector<Named>& tensors) {
  std::vector<TensorSource> sources;
  for (const Named& tensor : tensors) sources.push_back(float_tensor(tensor.name, tensor.shape, tensor.values));
  (void)write_safetensors(path, sources);
}

/// Targets with memory of their own.
class Wanted {
 public:
  explicit Wanted(const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors) {
    for (const auto& [name, shape] : tensors) {
      int64_t elements = 1;
      for (int64_t extent : shape) elements *= extent;
      values_.push_back(std::vector<float>(elements, -1.0F));
      targets_.push_back({name, shape, values_.back()});
    }
  }
  std::span<const TensorTarget> targets() const { return targets_; }
  const std::vector<float>& values(size_t i) const { return values_[i]; }
  bool untouched() const {
    for (const auto& values : values_) {
      if (values != std::vector<float>(values.size(), -1.0F)) return false;
    }
    return true;
  }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<TensorTarget> targets_;
};

const std::string kEmbedding = "model.embed_tokens.weight";
const std::string kHead = "lm_head.weight";
const Named kEmbed{kEmbedding, {2, 2}, {1, 2, 3, 4}};

TEST(TensorSet, FillsEveryTarget) {
  const Scratch scratch;
  write_tensors(scratch.file("m"), {kEmbed, {"b", {3}, {5, 6, 7}}, {"layers.0.rotary_emb.inv_freq", {1}, {9}}});
  Wanted wanted({{"b", {3}}, {kEmbedding, {2, 2}}});
  const TensorSet set = TensorSet::open_file(scratch.file("m"));
  set.read(wanted.targets());
  EXPECT_EQ(wanted.values(0), (std::vector<float>{5, 6, 7}));
  EXPECT_EQ(wanted.values(1), (std::vector<float>{1, 2, 3, 4}));
}

TEST(TensorSet, NamesWhatIsMissingExtraOrOfAnotherShape) {
  const Scratch scratch;
  write_tensors(scratch.file("m"), {{"a", {2}, {1, 2}}, {"b", {3}, {5, 6, 7}}});
  const TensorSet set = TensorSet::open_file(scratch.file("m"));
  Wanted missing({{"a", {2}}, {"b", {3}}, {"c", {1}}, {"d", {1}}, {"e", {1}}, {"f", {1}}, {"g", {1}}});
  EXPECT_HAS(message_of(ErrorKind::format, [&] { set.read(missing.targets()); }),
             "5 tensors are missing: c, d, e, f, ...");
  Wanted extra({{"a", {2}}});
  EXPECT_HAS(message_of(ErrorKind::format, [&] { set.read(extra.targets()); }),
             "1 tensor is not part of this model: b");
  Wanted shape({{"a", {2}}, {"b", {1, 3}}});
  EXPECT_HAS(message_of(ErrorKind::shape, [&] { set.read(shape.targets()); }),
             "tensor 'b' has shape [3], expected [1, 3]");
  EXPECT_TRUE(missing.untouched() && extra.untouched() && shape.untouched());
  const std::vector<int32_t> integers{1, 2};
  (void)write_safetensors(scratch.file("i"),
                          std::vector<TensorSource>{{"a", StoredType::I32, {2}, {std::as_bytes(std::span(integers))}}});
  EXPECT_HAS(message_of(ErrorKind::format, [&] { TensorSet::open_file(scratch.file("i")).read(extra.targets()); }),
             "dtype I32, wanted F32, F16 or BF16");
}

/// KB-46
TEST(TensorSet, TiedHead) {
  const Scratch scratch;
  const Named head{kHead, {2, 2}, {1, 2, 3, 4}}, other{kHead, {2, 2}, {1, 2, 3, 5}};
  const auto read = [&](const std::vector<Named>& stored, bool tied) {
    write_tensors(scratch.file("m"), stored);
    Wanted wanted(
        tied ? std::vector<std::pair<std::string, std::vector<int64_t>>>{{kEmbedding, {2, 2}}}
             : std::vector<std::pair<std::string, std::vector<int64_t>>>{{kEmbedding, {2, 2}}, {kHead, {2, 2}}});
    TensorSet::open_file(scratch.file("m")).read(wanted.targets(), tied ? kHead : "");
    EXPECT_EQ(wanted.values(0), (std::vector<float>{1, 2, 3, 4}));
  };
  read({kEmbed}, true);
  read({head}, true);
  read({kEmbed, head}, true);
  const std::string differ = message_of(ErrorKind::format, [&] { read({kEmbed, other}, true); });
  EXPECT_HAS(differ, kEmbedding);
  EXPECT_HAS(differ, kHead);
  read({kEmbed, head}, false);
  EXPECT_HAS(message_of(ErrorKind::format, [&] { read({kEmbed}, false); }), "missing: lm_head.weight");
}

/// KB-50
class ShardedFolder : public ::testing::Test {
 protected:
  ShardedFolder() {
    write_tensors(scratch_.file("s1.safetensors"), {{"a", {2}, {1, 2}}});
    write_tensors(scratch_.file("s2.safetensors"), {{"b", {1}, {3}}, {"c", {1}, {4}}});
    index(R"("a": "s1.safetensors", "b": "s2.safetensors", "c": "s2.safetensors")");
  }
  void index(const std::string& map) const {
    scratch_.write("model.safetensors.index.json", R"({"metadata": {"total_size": 16}, "weight_map": {)" + map + "}}");
  }
  std::string refuse(ErrorKind kind) const {
    return message_of(kind, [&] { (void)TensorSet::open_folder(scratch_.file("")); });
  }
  Scratch scratch_;
};

TEST_F(ShardedFolder, Opens) {
  const TensorSet set = TensorSet::open_folder(scratch_.file(""));
  Wanted wanted({{"c", {1}}, {"b", {1}}, {"a", {2}}});
  set.read(wanted.targets());
  EXPECT_EQ(wanted.values(0)[0], 4);
  EXPECT_EQ(wanted.values(1)[0], 3);
  EXPECT_EQ(wanted.values(2), (std::vector<float>{1, 2}));
  EXPECT_TRUE(set.ignored_files().empty());
}

TEST_F(ShardedFolder, IndexAndFilesMustAgree) {
  index(R"("a": "s1.safetensors", "b": "s1.safetensors", "c": "s2.safetensors")");
  EXPECT_HAS(refuse(ErrorKind::format), "tensor 'b' is not in s1.safetensors");
  index(R"("a": "s1.safetensors", "c": "s2.safetensors")");
  EXPECT_HAS(refuse(ErrorKind::format), "tensor 'b' is not in the index");
  index(R"("a": "../s1.safetensors", "b": "s2.safetensors", "c": "s2.safetensors")");
  EXPECT_HAS(refuse(ErrorKind::format), "'../s1.safetensors' of tensor 'a'");
  index(R"("a": 1)");
  EXPECT_HAS(refuse(ErrorKind::format), "index.json:1:");
  scratch_.write("model.safetensors.index.json", "{}");
  EXPECT_HAS(refuse(ErrorKind::format), "weight_map");
}

TEST_F(ShardedFolder, SameTensorTwice) {
  write_tensors(scratch_.file("s1.safetensors"), {{"a", {2}, {1, 2}}, {"b", {1}, {3}}});
  EXPECT_HAS(refuse(ErrorKind::format), "tensor 'b' is here and in s2.safetensors");
}

TEST_F(ShardedFolder, MissingShard) {
  std::filesystem::remove(scratch_.file("s2.safetensors"));
  const std::string message = refuse(ErrorKind::io);
  EXPECT_HAS(message, "'b'");
  EXPECT_HAS(message, "s2.safetensors");
}

TEST_F(ShardedFolder, ExtraFileIsIgnoredAndNoted) {
  write_tensors(scratch_.file("model.safetensors"), {{"a", {2}, {9, 9}}});
  scratch_.write("config.json", "{}");
  const ModelFolder folder = open_model_folder(scratch_.file(""));
  Wanted wanted({{"a", {2}}, {"b", {1}}, {"c", {1}}});
  folder.tensors.read(wanted.targets());
  EXPECT_EQ(wanted.values(0)[0], 1);
  ASSERT_EQ(folder.warnings.size(), 1U);
  EXPECT_HAS(folder.warnings[0], "model.safetensors");
}

TEST(ModelFolder, HuggingFaceLayout) {
  const Scratch scratch;
  message_of(ErrorKind::io, [&] { (void)open_model_folder(scratch.file("missing")); });
  EXPECT_HAS(message_of(ErrorKind::format, [&] { (void)open_model_folder(scratch.file("")); }),
             "neither a model folder");
  scratch.write("config.json", R"({"model_type": "keel"})");
  EXPECT_HAS(message_of(ErrorKind::io, [&] { (void)open_model_folder(scratch.file("")); }), "model.safetensors");
  write_tensors(scratch.file("model.safetensors"), {kEmbed});
  scratch.write("tokenizer.json", "{}");
  const ModelFolder folder = open_model_folder(scratch.file(""));
  EXPECT_EQ(folder.config_text, R"({"model_type": "keel"})");
  EXPECT_HAS(folder.tokenizer_path, "tokenizer.json");
  EXPECT_TRUE(folder.warnings.empty());
  const auto data = test_data();
  if (data) {
    EXPECT_GT(open_model_folder((*data / "golden/models/llama-gqa").string()).tensors.names().size(), 10U);
  }
}

}  // namespace
}  // namespace keel
