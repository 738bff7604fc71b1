#include "keel/data/data_manifest.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/keel_folder.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests

TEST(KeelFolder, Opens) {
  const KeelFolder folder;
  const TokenData data = open_token_data(folder.scratch.file(""));
  EXPECT_EQ(data.format, DataFormat::keel);
  EXPECT_EQ(data.vocab_size, 330);
  EXPECT_EQ(data.eod_id, 2);
  EXPECT_EQ(std::filesystem::path(data.tokenizer_path).filename(), "m.model");
  EXPECT_EQ(data.tokenizer_sha256, sha256_hex("tokenizer"));
  EXPECT_EQ(all_tokens(*data.train), (std::vector<int32_t>{5, 6, 2, 7, 2, 8, 2}));
  EXPECT_EQ(all_tokens(*data.val), (std::vector<int32_t>{9, 2}));
  for (int64_t i : {0, 1}) EXPECT_EQ(data.train->shards()[i].xxh3, data.train->compute_xxh3(i));
  EXPECT_NO_THROW(data.train->verify_hashes());
}

TEST(KeelFolder, HashesFindAlteredShards) {
  const KeelFolder folder;
  std::string bin = get_file(folder.scratch.file("train-00001.bin"));
  bin[0] ^= 1;
  folder.scratch.write("train-00001.bin", bin);
  const TokenData data = open_token_data(folder.scratch.file(""));
  EXPECT_HAS(message_of(ErrorKind::format, [&] { data.train->verify_hashes(); }), "train-00001.bin");
}

TEST(KeelFolder, ManifestAndFilesMustAgree) {
  const KeelFolder folder;
  EXPECT_HAS(folder.refuse_with("keel.tokens/1", "keel.tokens/9"), "keel.tokens/9");
  EXPECT_HAS(folder.refuse_with(R"("tokens": 5)", R"("tokens": 6)"), "5 tokens, the manifest says 6");
  EXPECT_HAS(folder.refuse_with(R"("documents": 2)", R"("documents": 1)"), "2 documents, the manifest says 1");
  EXPECT_HAS(folder.refuse_with(R"("bytes": 10)", R"("bytes": 12)"), "10 bytes, the manifest says 12");
  EXPECT_HAS(folder.refuse_with(R"("tokens": 5)", R"("tokens": -5)"), "manifest.json:1:");
  EXPECT_HAS(folder.refuse_with(R"("tokens": 5)", R"("tokens": 5.5)"), "not a count");
  EXPECT_HAS(folder.refuse_with("train-00001", "train-00000"), "twice");
  EXPECT_HAS(folder.refuse_with("train-00001", "../train-00001"), "not a file name");
  EXPECT_HAS(folder.refuse_with(R"("file": "m.model")", R"("file": "/etc/passwd")"), "not a file name");
  EXPECT_HAS(folder.refuse_with(R"("shards")", R"("shrads")"), "shards");
  folder.scratch.write("m.model", "another");
  EXPECT_HAS(folder.refuse_with("extra", "other"), "tokenizer");
  folder.scratch.write("m.model", "tokenizer");
  write_megatron(folder.scratch, "train-00002", {{1}});
  EXPECT_HAS(folder.refuse_with("extra", "other"), "train-00002.bin");
  folder.scratch.write("manifest.json", folder.manifest.substr(0, 200));
  open_error(ErrorKind::format, folder.scratch.file(""));
}

TEST(KeelFolder, AManifestMustNotContradictItself) {
  const KeelFolder folder;
  const auto with = [&](const std::string& more) { return folder.refuse_with(R"("extra": 1)", more); };
  EXPECT_HAS(with(R"("dtype": "int32")"), "uint16 tokens, the manifest says int32");
  EXPECT_HAS(with(R"("dtype": "uint12")"), "unknown dtype 'uint12'");
  EXPECT_HAS(with(R"("dtype": "uint8")"), "a vocabulary of 330 does not fit uint8");
  EXPECT_HAS(with(R"("tokens": 10)"), "10 tokens where the shards have 9");
  EXPECT_HAS(with(R"("documents": 3)"), "3 documents where the shards have 4");
  EXPECT_HAS(folder.refuse_with(R"("eod_id": 2)", R"("eod_id": 330)"), "eod_id 330 is outside the vocabulary of 330");
  EXPECT_HAS(folder.refuse_with(R"("documents": 2)", R"("documents": 2, "sequences": 3)"),
             "2 sequences, the manifest says 3");
  EXPECT_HAS(folder.refuse_with(R"("idx": {"bytes": 82)", R"("idx": {"bytes": 80)"), "82 bytes, the manifest says 80");
}

TEST(KeelFolder, AManifestIsAFile) {
  const Scratch scratch;
  write_megatron(scratch, "train-00000", {{1, 2}});
  scratch.write("manifest.json/x", "");
  EXPECT_HAS(open_error(ErrorKind::io, scratch.file("")), "not a regular file");
}

TEST(DataManifest, ReadsWhatItWrites) {
  const KeelFolder folder;
  const std::string path = folder.scratch.file("");
  DataManifest manifest = read_data_manifest(path);
  manifest.dtype = TokenDtype::uint16;
  manifest.documents = 4;
  manifest.tokens = 9;
  manifest.tokenizer->type = "sentencepiece-bpe";
  manifest.tokenizer->unk_id = 0;
  manifest.shards[0].sequences = 1;
  manifest.shards[0].bin = describe_file(folder.scratch.file("val-00000.bin"));
  const std::string text = data_manifest_text(manifest, {{"tool", "test"}});
  folder.scratch.write("manifest.json", text);
  EXPECT_EQ(data_manifest_text(read_data_manifest(path), {{"tool", "test"}}), text);
  const Json json = Json::parse(text);
  EXPECT_EQ(json["dtype"], "uint16");
  EXPECT_EQ(json["tokenizer"]["unk_id"], 0);
  EXPECT_TRUE(json["tokenizer"]["bos_id"].is_null());
  EXPECT_EQ(json["shards"][0]["bin"]["sha256"].get<std::string>(),
            sha256_hex(get_file(folder.scratch.file("val-00000.bin"))));
}

TEST(KeelFolder, MissingFiles) {
  const KeelFolder folder;
  std::filesystem::remove(folder.scratch.file("train-00001.idx"));
  EXPECT_HAS(open_error(ErrorKind::io, folder.scratch.file("")), "train-00001.idx");
  const Scratch empty;
  EXPECT_HAS(open_error(ErrorKind::io, empty.file(""), DataFormat::keel), "manifest.json");
}

}  // namespace
}  // namespace keel
